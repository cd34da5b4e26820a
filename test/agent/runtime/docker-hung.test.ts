// A Docker Engine that hangs: it accepts every call and answers none.
import { once } from 'node:events';
import { mkdtemp, rm } from 'node:fs/promises';
import { createServer, type Server, type Socket } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, beforeEach, expect, test } from 'vitest';
import { openDocker } from '../../../agent/runtime/docker.ts';

let folder: string;
let server: Server;
let sockets: Socket[];
beforeEach(async () => {
  folder = await mkdtemp(join(tmpdir(), 'hung-'));
  sockets = [];
  server = createServer((socket) => sockets.push(socket.resume())).listen(join(folder, 'docker.sock'));
  await once(server, 'listening');
});
afterEach(async () => {
  for (const socket of sockets) socket.destroy();
  await new Promise((resolve) => server.close(resolve));
  await rm(folder, { recursive: true });
});

test.each(['version', 'list', 'bridges'] as const)(
  'a call of %s to an engine that hangs fails in time',
  async (question) => {
    const engine = openDocker({ socketPath: join(folder, 'docker.sock'), machineId: 'm', answerMsMax: 50 });
    await expect(engine[question]()).rejects.toThrow('socket hang up');
    expect(sockets).toHaveLength(1);
  },
);
