// The holders of a host: one that was ended until its container runs again comes back only if the runtime asks for it.
import { once } from 'node:events';
import { mkdirSync, mkdtempSync, rmSync } from 'node:fs';
import { createServer, type Server, type Socket } from 'node:net';
import { tmpdir } from 'node:os';
import { dirname, join } from 'node:path';
import { afterEach, beforeEach, expect, test } from 'vitest';
import { type HolderProcesses, openHolders } from '../../../agent/holders/holders.ts';
import { sendJson } from '../../../agent/wire/frames.ts';
import { workloadPaths } from '../../../agent/wire/workload-folder.ts';
import { systemClock } from '../../../shared/clock.ts';
import { createLog } from '../../../shared/log.ts';

const ID = 'wl';
const STATUS = { kind: 'status', host_key: 'ssh-ed25519 KEY', guest: false, main_exit: null };
let dir: string;
let holders: HolderProcesses;
let servers: Server[];
let told: string[];
beforeEach(() => {
  dir = mkdtempSync(join(tmpdir(), 'holders-'));
  servers = [];
  told = [];
  holders = openHolders(
    {
      clock: systemClock(),
      log: createLog('test', 'silent'),
      stateDir: dir,
      bundle: { folder: dir, entrypoint: [], holderProgram: '', node: [] },
      startHolder: playHolder,
      tell: ({ state }) => void told.push(state),
    },
    () => undefined,
  );
});
afterEach(async () => {
  await holders.leave();
  for (const server of servers) server.close();
  rmSync(dir, { recursive: true });
});

/** A holder that reports its status, and ends if it is told anything. */
async function playHolder(folder: string): Promise<number> {
  const { holderSocket } = workloadPaths(folder);
  mkdirSync(dirname(holderSocket), { recursive: true });
  const server = createServer((socket: Socket) => {
    sendJson(socket, STATUS);
    socket.on('error', () => undefined).once('data', () => (socket.destroy(), server.close()));
  }).listen(holderSocket);
  servers.push(server);
  await once(server, 'listening');
  return 1;
}

const isUp = (): boolean | undefined => holders.statuses().get(ID)?.up;

test('a paused holder keeps its host key in the reports, and no repair brings it back', async () => {
  await holders.ensure(ID);
  await expect.poll(isUp).toBe(true);
  await holders.pause(ID);
  await expect.poll(isUp).toBe(false);
  expect(holders.statuses().get(ID)).toMatchObject({ guest: false, host_key: 'ssh-ed25519 KEY' });
  await holders.replace(ID, 'it does not answer the control plane');
  expect([servers.length, told]).toEqual([1, []]);
  await holders.ensure(ID);
  await expect.poll(isUp).toBe(true);
  expect(servers).toHaveLength(2);
});

test('a holder that has ended for good is forgotten', async () => {
  await holders.ensure(ID);
  await expect.poll(isUp).toBe(true);
  await holders.end(ID);
  await expect.poll(() => holders.statuses().has(ID)).toBe(false);
});

test('a holder that is gone is replaced, and the control plane is told', async () => {
  await holders.ensure(ID);
  await expect.poll(isUp).toBe(true);
  await holders.replace(ID, 'it does not answer the control plane');
  expect(told).toEqual(['replaced']);
});
