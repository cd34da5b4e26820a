// Sealed text opens only for the same place, with the same secret, and unchanged.
import { expect, test } from 'vitest';
import { openSealing } from '../../../../control-plane/base/http/sealing.ts';
import { systemClock } from '../../../../shared/clock.ts';
import { createIds } from '../../../../shared/ids.ts';
import { systemRng } from '../../../../shared/rng.ts';

const ids = createIds(systemClock(), systemRng());
const sealing = openSealing(new Uint8Array(32).fill(1), ids);

test.each(['', 'secret', '{"key":"ü"}', 'x'.repeat(100_000)])('a sealed text opens again', (text) => {
  expect(sealing.open('here', sealing.seal('here', text))).toBe(text);
});

test('the same text is sealed differently each time, and cannot be read from the sealed text', () => {
  const [a, b] = [sealing.seal('here', 'visible'), sealing.seal('here', 'visible')];
  expect(a).not.toBe(b);
  expect(Buffer.from(a, 'base64url').includes('visible')).toBe(false);
});

test.each([
  ['elsewhere', sealing, 'there', (sealed: string) => sealed],
  ['under another secret', openSealing(new Uint8Array(32), ids), 'here', (sealed: string) => sealed],
  ['changed', sealing, 'here', (sealed: string) => `${sealed.startsWith('A') ? 'B' : 'A'}${sealed.slice(1)}`],
  ['cut short', sealing, 'here', (sealed: string) => sealed.slice(0, 20)],
  ['empty', sealing, 'here', () => ''],
])('it does not open %s', (_what, opener, place, change) => {
  expect(() => opener.open(place, change(sealing.seal('here', 'secret')))).toThrow(Error);
});
