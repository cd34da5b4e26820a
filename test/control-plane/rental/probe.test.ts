// Keys of the probe: ssh2 alone makes an unreadable one in 256, and its instance would never come up.
import ssh2 from 'ssh2';
import { expect, test } from 'vitest';
import { newProbeKey } from '../../../control-plane/rental/edge/probe.ts';

const MANY = 1_500;

test('every probe key can be read again, and its public half is whole', () => {
  for (let i = 0; i < MANY; i += 1) {
    const key = newProbeKey();
    expect(ssh2.utils.parseKey(key.privateKey)).not.toBeInstanceOf(Error);
    expect(ssh2.utils.parseKey(key.publicLine)).not.toBeInstanceOf(Error);
  }
});
