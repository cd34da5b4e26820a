// How the operator's commands reach the daemon: it answers at its socket, there is none, or the user may not ask it.
import { once } from 'node:events';
import { chmodSync, mkdtempSync, rmSync } from 'node:fs';
import { createServer, type RequestListener } from 'node:http';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { expect, onTestFinished, test } from 'vitest';
import { askDaemon } from '../../../control-plane/admin/command.ts';
import { withoutRoot } from '../../kit/without-root.ts';

const QUESTION = { method: 'GET', url: '/nothing' } as const;

/** A socket whose server knows no path, unless it is given another answer. */
async function openSocket(
  answer: RequestListener = (_, response) => response.writeHead(404).end('{}'),
): Promise<{ directory: string; socketPath: string }> {
  const directory = mkdtempSync(join(tmpdir(), 'svc-'));
  const socketPath = join(directory, 'admin.sock');
  const server = createServer(answer).listen(socketPath);
  await once(server, 'listening');
  onTestFinished(() => {
    server.close();
    rmSync(directory, { recursive: true });
  });
  return { directory, socketPath };
}

test('a missing daemon is distinguished from a daemon that refuses', async () => {
  const { directory, socketPath } = await openSocket();
  expect(await askDaemon(join(directory, 'nobody.sock'), QUESTION)).toBeUndefined();
  expect(await askDaemon(socketPath, QUESTION)).toEqual({ status: 404, body: '{}' });
});

test('a user who may not ask the daemon is told who may', async () => {
  const { directory, socketPath } = await openSocket();
  chmodSync(directory, 0);
  await expect(withoutRoot(() => askDaemon(socketPath, QUESTION))).rejects.toThrow(
    `you may not use ${socketPath}: run this command as root, or as the user of the service`,
  );
  chmodSync(directory, 0o700);
});

test.each<[string, RequestListener]>([
  ['before its answer', (request) => request.socket.destroy()],
  ['in its answer', (_, response) => void response.writeHead(200).write('{', () => response.destroy())],
])('an operator whose daemon ends %s is told where the effect of the command shows', async (_when, answer) => {
  const { socketPath } = await openSocket(answer);
  await expect(askDaemon(socketPath, QUESTION)).rejects.toThrow(
    'the control plane ended before it had answered: once it runs again, `admin audit list` shows whether the command took effect',
  );
});
