// The limits of image checks: slots at a registry, cached answers, and where a registry may redirect to.
import { expect, test } from 'vitest';
import { fail, ServiceError } from '../../../../shared/errors.ts';
import { openCache } from '../../../../control-plane/rental/launch/cache.ts';
import { openSemaphore } from '../../../../shared/semaphore.ts';
import { openRegistryClients } from '../../../../control-plane/rental/launch/registry.ts';
import { systemClock } from '../../../../shared/clock.ts';
import { virtualClock } from '../../../kit/virtual-clock.ts';

test('a check that waits longer than allowed gives up, and the next in order gets the slot', async () => {
  const clock = virtualClock();
  const semaphore = openSemaphore(clock, 1);
  const first = Promise.withResolvers<string>();
  const order: string[] = [];
  const come = (name: string, waitMs: number): Promise<string | undefined> =>
    semaphore.run('registry', waitMs, async () => {
      order.push(name);
      return name === 'first' ? first.promise : name;
    });
  const visits = [come('first', 0), come('impatient', 10), come('second', 1_000), come('third', 1_000)];
  expect(await semaphore.run('another registry', 0, async () => 'at once')).toBe('at once');
  await clock.advance(10);
  expect(await visits[1]).toBeUndefined();
  first.resolve('first');
  expect(await Promise.all(visits)).toEqual(['first', undefined, 'second', 'third']);
  expect(order).toEqual(['first', 'second', 'third']);
});

test('a check that fails frees its slot', async () => {
  const semaphore = openSemaphore(virtualClock(), 1);
  await expect(semaphore.run('registry', 0, () => Promise.reject(new Error('no')))).rejects.toThrow('no');
  expect(await semaphore.run('registry', 0, async () => 'in')).toBe('in');
});

test('a full cache forgets the answer that was not used for longest', async () => {
  const cache = openCache<number>(virtualClock(), { keepMs: 1_000, refusalKeepMs: 0, entriesMax: 2 });
  let asked = 0;
  const ask = async (): Promise<number> => (asked += 1);
  for (const key of ['a', 'b', 'a', 'c', 'a']) await cache.get(key, ask);
  expect(asked).toBe(3);
  expect(await cache.get('b', ask)).toBe(4);
});

test('a cache keeps no refusal of a caller that asks too much', async () => {
  const cache = openCache<string>(virtualClock(), { keepMs: 1_000, refusalKeepMs: 1_000, entriesMax: 2 });
  const refused = cache.get('a', async () => fail('rate_limit_exceeded', 'Too much.'));
  await expect(refused).rejects.toThrow('Too much.');
  expect(await cache.get('a', async () => 'answer')).toBe('answer');
});

test('a caller that shares the call of a caller that asks too much is not refused with it, but asks itself, once for all who share', async () => {
  const cache = openCache<string>(virtualClock(), { keepMs: 1_000, refusalKeepMs: 1_000, entriesMax: 2 });
  const asked = Promise.withResolvers<string>();
  const refused = cache.get('a', () => asked.promise);
  let calls = 0;
  const ask = async (): Promise<string> => `answer ${(calls += 1)}`;
  const others = [cache.get('a', ask), cache.get('a', ask)];
  asked.reject(new ServiceError('rate_limit_exceeded', { detail: 'Too much.' }));
  await expect(refused).rejects.toThrow('Too much.');
  expect(await Promise.all(others)).toEqual(['answer 1', 'answer 1']);
});

test('a full cache forgets the oldest answer', async () => {
  const cache = openCache<number>(virtualClock(), { keepMs: 1_000, refusalKeepMs: 0, entriesMax: 2 });
  let asked = 0;
  const ask = async (): Promise<number> => (asked += 1);
  for (const key of ['a', 'b', 'c', 'c', 'b']) await cache.get(key, ask);
  expect(asked).toBe(3);
  expect(await cache.get('a', ask)).toBe(4);
});

test('only a registry that the operator has named leads to others that are named, and only by the scheme it speaks', async () => {
  const named = [
    { host: '10.0.0.1:5000', plainHttp: true },
    { host: '10.0.0.2', plainHttp: false },
  ];
  const clients = openRegistryClients(named, { clock: systemClock() });
  const inside = 'http://10.0.0.1:5000/token';
  expect(() => clients.to('images.example.com').outbound.assertAllowed(inside)).toThrow('https');
  expect(() => clients.to('10.0.0.2:443').outbound.assertAllowed(inside)).not.toThrow();
  expect(() => clients.to('10.0.0.1:5000').outbound.assertAllowed('http://10.0.0.2/')).toThrow('https');
  expect(clients.to('10.0.0.1:5000').baseUrl).toBe('http://10.0.0.1:5000/v2/');
  expect(clients.to('10.0.0.2:443').baseUrl).toBe('https://10.0.0.2:443/v2/');
  expect(clients.to('docker.io').baseUrl).toBe('https://registry-1.docker.io/v2/');
  await clients.close();
});
