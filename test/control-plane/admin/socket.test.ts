// The operator's commands at the socket of the daemon: it answers, there is none, or the user may not ask it.
import { chmodSync, mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, beforeEach, expect, test } from 'vitest';
import { askDaemon } from '../../../control-plane/admin/command.ts';
import type { Http } from '../../../control-plane/base/http/server.ts';
import { openOperator } from '../../kit/operator.ts';
import { withoutRoot } from '../../kit/without-root.ts';
import { openWorld, type World } from '../../kit/world.ts';

let world: World;
let daemon: Http;
let directory: string;
let socketPath: string;
beforeEach(async () => {
  world = await openWorld();
  daemon = openOperator(world).http;
  directory = mkdtempSync(join(tmpdir(), 'svc-'));
  socketPath = join(directory, 'admin.sock');
  await daemon.listen({ socketPath });
});
afterEach(async () => {
  await daemon.close();
  await world.close();
  rmSync(directory, { recursive: true });
});

test('a missing daemon is distinguished from a daemon that refuses', async () => {
  expect(await askDaemon(join(directory, 'nobody.sock'), { method: 'GET', url: '/healthz' })).toBeUndefined();
  expect(await askDaemon(socketPath, { method: 'GET', url: '/nothing' })).toMatchObject({ status: 404 });
});

test('a user who may not ask the daemon is told who may', async () => {
  chmodSync(directory, 0);
  const asked = withoutRoot(() => askDaemon(socketPath, { method: 'GET', url: '/healthz' }));
  await expect(asked).rejects.toThrow(
    `you may not use ${socketPath}: run this command as root, or as the user of the service`,
  );
  chmodSync(directory, 0o700);
});
