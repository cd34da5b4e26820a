// Ports for programs of tests: free, given once, and different from those of tests that run at the same time.
import { once } from 'node:events';
import { createServer } from 'node:net';
import { expect, test } from 'vitest';
import { freePort, freePorts } from './ports.ts';
import { runProgram } from './processes.ts';

test('a port with a listener is skipped', async () => {
  const after = (await freePort()) + 1;
  const server = createServer().listen(after, '127.0.0.1');
  // Somebody else who listens there does as well.
  await once(server, 'listening').catch(() => undefined);
  expect(await freePort()).not.toBe(after);
  server.close();
});

test('a port is not given twice, even if nobody listens there yet', async () => {
  const rows = await Promise.all([
    freePorts(8),
    freePort().then((port) => ({ first: port, last: port })),
    freePorts(8),
  ]);
  const ports = rows.flatMap(({ first, last }) => Array.from({ length: last - first + 1 }, (_, i) => first + i));
  expect(new Set(ports).size).toBe(17);
});

test('workers that run at the same time have no port in common', async () => {
  const script = `const { freePorts } = await import(${JSON.stringify(import.meta.resolve('./ports.ts'))});
    const all = []; for (let i = 0; i < 100; i += 1) all.push((await freePorts(8)).first); console.log(Math.min(...all), Math.max(...all) + 7)`;
  const ranges = await Promise.all(
    ['1', '2'].map(async (worker) => {
      const args = ['--input-type=module', '-e', script];
      const output = await runProgram({ command: process.execPath, args, env: { VITEST_POOL_ID: worker } });
      return output.trim().split(' ').map(Number);
    }),
  );
  expect(ranges[0]?.[1]).toBeLessThan(ranges[1]?.[0] ?? 0);
});
