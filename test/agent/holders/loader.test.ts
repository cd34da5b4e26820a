// The loader of our bundle reads no preload file, and a loader that we do not know is refused.
import { describe, expect, test } from 'vitest';
import { sealedLoader } from '../../../agent/holders/bundle.ts';

describe('a sealed loader', () => {
  test('contains no name of a preload file, however often it was there, and is otherwise unchanged', () => {
    const loader = Buffer.from('a/etc/ld.so.preload\0b/etc/ld.so.preload\0c/etc/ld.so.cache\0');
    const nothing = '\0'.repeat(19);
    expect(sealedLoader(loader).toString()).toBe(`a${nothing}b${nothing}c/etc/ld.so.cache\0`);
    expect(loader.toString()).toContain('/etc/ld.so.preload');
  });

  test('is not made of a loader that reads another file', () => {
    expect(() => sealedLoader(Buffer.from('/etc/ld-other.so.preload\0'))).toThrow(
      "the host's program loader is not glibc's",
    );
  });
});
