// One SSH session and its client: how the client learns the end of its program, and requests that a channel gets only once.
import { once } from 'node:events';
import type { Client, ClientChannel } from 'ssh2';
import { afterEach, beforeEach, describe, expect, test } from 'vitest';
import type { Exit } from '../../../agent/wire/guest-messages.ts';
import { eventually } from '../../kit/processes.ts';
import { client, closeSshServers, exec, startWorld, type World } from '../ssh-server.ts';

let world: World;
let over: Client;

beforeEach(async () => {
  world = await startWorld();
  over = client(world);
  await once(over, 'ready');
});
afterEach(closeSshServers);

/** Internals of ssh2: the client's requests on a channel that is open already. */
interface Internals {
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
