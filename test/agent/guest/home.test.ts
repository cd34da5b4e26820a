// The folder that a session of the guest begins in, if the image's user may not enter the home that the image names.
import { once } from 'node:events';
import { chmodSync, mkdirSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { createServer, type Server, type Socket } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, beforeEach, expect, test } from 'vitest';
import { eachFrame, FRAME, FRAME_BYTES_MAX, sendJson } from '../../../agent/wire/frames.ts';
import type { GuestOrder } from '../../../agent/wire/guest-messages.ts';
import { startProgram, type Program } from '../../kit/processes.ts';

const GUEST = join(import.meta.dirname, '../../../agent/guest/main.ts');
/** Root may enter every folder, but not without its capabilities. */
const WITHOUT_CAPABILITIES = ['setpriv', '--bounding-set=-all', '--inh-caps=-all', '--'];
let run: string;
let home: string;
let workdir: string;
let server: Server;
let guest: Program;

beforeEach(async () => {
  run = mkdtempSync(join(tmpdir(), 'run-'));
  [home, workdir] = [join(run, 'home'), join(run, 'workdir')];
  for (const folder of [home, workdir]) mkdirSync(folder);
  const launch = { argv: ['/bin/true'], env: { HOME: home }, stop_signal: '', gpu_uuids: [] };
  writeFileSync(join(run, 'launch.json'), JSON.stringify(launch));
  server = createServer().listen(join(run, 'guest.sock'));
  await once(server, 'listening');
  const argv = [...(process.getuid?.() === 0 ? WITHOUT_CAPABILITIES : []), process.execPath, GUEST, run];
  const [command = '', ...args] = argv;
  guest = startProgram({ command, args, cwd: workdir });
});
afterEach(async () => {
  await guest.stop('SIGKILL');
  server.close();
  rmSync(run, { recursive: true });
});

/** Calls `hear` with each message and each piece of output. Resolves at the end. bash may warn that it cannot read its file in the home. */
function listen(socket: Socket, hear: (text: string) => void): Promise<void> {
  return eachFrame(socket, FRAME_BYTES_MAX, ({ type, payload }) => {
    if (type === FRAME.json || type === FRAME.data) hear(payload.toString());
  });
}

async function nextConnection(): Promise<Socket> {
  const [socket] = (await once(server, 'connection')) as [Socket];
  return socket;
}

/** What the guest sends in a session that runs `pwd`, after its hello. The folders are closed once the guest runs. */
async function wordsOfSession(closed: readonly string[]): Promise<string[]> {
  const control = await nextConnection();
  const introduced = Promise.withResolvers<string>();
  void listen(control, introduced.resolve);
  expect(JSON.parse(await introduced.promise)).toEqual({ kind: 'control' });
  for (const folder of closed) chmodSync(folder, 0o600);
  const request = { kind: 'exec', command: 'pwd', env: {}, pty: null } as const;
  sendJson(control, { kind: 'open', token: 'token', request } satisfies GuestOrder);
  const words: string[] = [];
  await listen(await nextConnection(), (word) => words.push(word));
  control.destroy();
  return words.slice(1);
}

test.each([
  ['begins in its home', () => [], () => home],
  ['begins in the folder of the image if its home is closed', () => [home], () => workdir],
  ['begins in / if both are closed', () => [home, workdir], () => '/'],
])('a session %s', async (_title, closed, folder) => {
  const exit = JSON.stringify({ kind: 'exit', exit: { code: 0, signal: null } });
  expect(await wordsOfSession(closed())).toEqual(['{"kind":"started"}', `${folder()}\n`, exit]);
});
