// The bytes that a ring keeps, for every way of filling it.
import { expect, test } from 'vitest';
import { createRing } from '../../../agent/holder/terminals.ts';

test('a ring returns the last bytes of the stream, from every place since its start', () => {
  const all = Buffer.from(Array.from({ length: 200 }, (_, i) => i));
  for (let chunk = 1; chunk <= 23; chunk += 1) {
    const ring = createRing(10);
    for (let at = 0; at < all.length; at += chunk) {
      ring.append(all.subarray(at, at + chunk));
      const end = Math.min(all.length, at + chunk);
      expect([ring.start(), ring.end()]).toEqual([Math.max(0, end - 10), end]);
      for (let place = ring.start(); place <= end; place += 1) {
        expect([...ring.from(place)]).toEqual([...all.subarray(place, end)]);
      }
    }
  }
});
