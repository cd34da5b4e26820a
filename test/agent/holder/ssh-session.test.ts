// One SSH session and its client: how the client learns the end of its program, and requests that a channel gets only once.
import { once } from 'node:events';
import { text } from 'node:stream/consumers';
import type { Client, ClientChannel } from 'ssh2';
import { afterEach, beforeEach, describe, expect, test } from 'vitest';
import { ENV_BYTES_MAX } from '../../../agent/holder/ssh-session.ts';
import type { Exit } from '../../../agent/wire/guest-messages.ts';
import { eventually } from '../../kit/processes.ts';
import { client, closeSshServers, exec, startWorld, type World } from '../ssh-server.ts';

/** More than ssh2's client takes before it reads: its buffer and its window. */
const MUCH = Buffer.alloc(5 * 1024 * 1024);
let world: World;
let over: Client;

beforeEach(async () => {
  world = await startWorld();
  over = client(world);
  await once(over, 'ready');
});
afterEach(closeSshServers);

/** Internals of ssh2: the client's window, and its requests on a channel that is open already. */
interface Internals {
  incoming: { window: number };
  outgoing: { id: number };
  _client: {
    _protocol: {
      exec(id: number, command: string, wantReply: boolean): void;
      shell(id: number, wantReply: boolean): void;
      subsystem(id: number, name: string, wantReply: boolean): void;
    };
  };
}

async function begun(): Promise<{ channel: ClientChannel; session: World['sessions'][number] }> {
  const channel = await exec(over);
  channel.resume();
  return { channel, session: await eventually('session', 5_000, async () => world.sessions[0]) };
}

describe('the end of a program', () => {
  const signal = (name: string, code: number | null = null): Exit => ({ code, signal: name });
  test.each([
    [{ code: 3, signal: null }, [3]],
    [signal('SIGSEGV'), [null, 'SIGSEGV', false, '']],
    // SSH has no name for these.
    [signal('SIGBUS'), [135]],
    [signal('SIGXCPU'), [152]],
    // No honest guest says these.
    [signal(''), [255]],
    [signal('SIGOTHER'), [255]],
    [signal('constructor'), [255]],
    [signal('SIGOTHER', 4), [4]],
  ])('%o reaches the client as %o', async (exit, heard) => {
    const { channel, session } = await begun();
    const exits: unknown[][] = [];
    channel.on('exit', (...words: unknown[]) => exits.push(words));
    const closed = once(channel, 'close');
    session.events.onEnd(exit);
    await closed;
    expect(exits).toEqual([heard]);
  });
});

describe('the environment of a session', () => {
  /** Its messages have this many bytes in all. */
  const envOf = (bytes: number): Record<string, string> => {
    const variables = Array.from({ length: 8 }, (_, i) => [`V${i}`, 'x'.repeat(16_384 - '{"V0":""}'.length)]);
    const env = Object.fromEntries(variables) as Record<string, string>;
    env['V7'] += 'x'.repeat(bytes - ENV_BYTES_MAX);
    return env;
  };
  const execWith = (
    through: Client,
    env: Record<string, string>,
    onExit = (_code: unknown): unknown => undefined,
  ): Promise<ClientChannel> =>
    new Promise((resolve, reject) => {
      through.exec('x', { env }, (error, channel) => (error ? reject(error) : resolve(channel.on('exit', onExit))));
    });

  test('reaches the program if it has 128 KiB', async () => {
    await execWith(over, envOf(ENV_BYTES_MAX));
    const { request } = await eventually('session', 5_000, async () => world.sessions[0]);
    expect(request).toMatchObject({ env: envOf(ENV_BYTES_MAX) });
  });

  test('is refused with a reason if it has one byte more, and the connection goes on', async () => {
    const exits: unknown[] = [];
    const channel = await execWith(over, envOf(ENV_BYTES_MAX + 1), (code) => exits.push(code));
    channel.resume();
    const errors = text(channel.stderr);
    await once(channel, 'close');
    expect(await errors).toBe('svc: the environment of this session is larger than 128 KiB\r\n');
    expect(exits).toEqual([255]);
    expect(world.sessions).toEqual([]);
    await begun();
  });

  test('counts as memory of its connection, as long as the session lasts', async () => {
    // Each character has six bytes in a message.
    const env = Object.fromEntries([0, 1].map((i) => [`V${i}`, '\u0001'.repeat(10_000)]));
    world.delay = new Promise(() => undefined);
    const clients = [over, ...Array.from({ length: 17 }, () => client(world))];
    await Promise.all(clients.slice(1).map((one) => once(one, 'ready')));
    let cut = 0;
    for (const one of clients) one.once('close', () => (cut += 1));
    for (const one of clients) {
      await Promise.allSettled(Array.from({ length: 64 }, () => execWith(one, env)));
    }
    await eventually('a connection that is cut', 5_000, async () => cut > 0 || undefined);
    expect(cut).toBeLessThan(3);
  });
});

test('outputs that have to wait for the client arrive once, also errors after other output', async () => {
  const channel = await exec(over);
  const { events } = await eventually('session', 5_000, async () => world.sessions[0]);
  const { incoming } = channel as unknown as Internals;
  const outputs = { stdout: channel, stderr: channel.stderr };
  const heard = { stdout: 0, stderr: 0 };
  for (const type of ['stdout', 'stderr'] as const) {
    outputs[type].on('data', (chunk: Buffer) => (heard[type] += chunk.length)).pause();
  }
  for (const type of ['stdout', 'stderr', 'stdout'] as const) {
    const before = heard[type];
    const sent = events.onData(type, MUCH);
    // The client reads only now, so the end of this output waits in the server.
    await eventually('an empty window', 5_000, async () => incoming.window === 0 || undefined);
    outputs[type].resume();
    await sent;
    await eventually('all of it', 5_000, async () => heard[type] - before >= MUCH.length || undefined);
    outputs[type].pause();
  }
  channel.resume();
  channel.stderr.resume();
  const exit = once(channel, 'exit');
  events.onEnd({ code: 0, signal: null });
  expect(await exit).toEqual([0]);
  expect(heard).toEqual({ stdout: 2 * MUCH.length, stderr: MUCH.length });
});

test.each(['exec', 'shell', 'subsystem sftp', 'subsystem other'])(
  'a second request on a channel (%s) is ignored, and the first command goes on',
  async (request) => {
    const { channel, session } = await begun();
    const { outgoing, _client: inner } = channel as unknown as Internals;
    const { _protocol: protocol } = inner;
    const [kind, name = ''] = request.split(' ');
    if (kind === 'exec') protocol.exec(outgoing.id, 'y', false);
    else if (kind === 'shell') protocol.shell(outgoing.id, false);
    else protocol.subsystem(outgoing.id, name, false);
    // The server has read the request before a channel that is opened after it.
    await exec(over);
    await eventually('the other session', 5_000, async () => world.sessions[1]);
    expect(world.sessions.map((each) => each.request)).toMatchObject([{ command: 'x' }, { command: 'x' }]);
    const closed = once(channel, 'exit');
    session.events.onEnd({ code: 7, signal: null });
    expect(await closed).toEqual([7]);
  },
);

test('a terminal has the size of its window also if that has changed while the guest started the shell', async () => {
  const starting = Promise.withResolvers<void>();
  world.delay = starting.promise;
  const channel = await new Promise<ClientChannel>((resolve, reject) => {
    over.shell({ cols: 80, rows: 24 }, (error, opened) => (error ? reject(error) : resolve(opened)));
  });
  const { request, sizes } = await eventually('session', 5_000, async () => world.sessions[0]);
  expect(request).toMatchObject({ pty: { cols: 80, rows: 24 } });
  channel.setWindow(50, 132, 0, 0);
  // The server has read the change before a channel that is opened after it.
  await exec(over);
  starting.resolve();
  await expect.poll(() => sizes).toEqual(['132x50']);
});
