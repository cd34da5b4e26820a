// One SSH session and its client: how the client learns the end of its program, and requests that a channel gets only once.
import { once } from 'node:events';
import type { Client, ClientChannel } from 'ssh2';
import { afterEach, beforeEach, describe, expect, test } from 'vitest';
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
