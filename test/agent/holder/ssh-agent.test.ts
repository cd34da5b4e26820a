// `ssh -A`: the client's agent is reached from inside while the session lives, by those who asked for it, and within the limits.
import { once } from 'node:events';
import { mkdtempSync, rmSync, statSync } from 'node:fs';
import { connect, createServer, type Server, type Socket } from 'node:net';
import { tmpdir } from 'node:os';
import { dirname, join } from 'node:path';
import type { Client, ClientChannel } from 'ssh2';
import { afterEach, beforeEach, describe, expect, test } from 'vitest';
import { createFrameDecoder, FRAME_BYTES_MAX } from '../../../agent/wire/frames.ts';
import { createListeners } from '../../../agent/guest/connections.ts';
import { SSH_CHANNELS_MAX } from '../../../shared/limits.ts';
import { eventually } from '../../kit/processes.ts';
import { virtualClock } from '../../kit/virtual-clock.ts';
import { client, closeSshServers, startWorld, type World } from '../ssh-server.ts';

let dir: string;
/** The client's own, which answers everything with the same word. */
let agent: Server;
let world: World;
let over: Client;

beforeEach(async () => {
  dir = mkdtempSync(join(tmpdir(), 'agent-'));
  agent = createServer((socket) => socket.on('data', () => socket.write('identities')));
  agent.listen(join(dir, 'agent'));
  world = await startWorld();
  over = client(world, { agent: join(dir, 'agent') });
  await once(over, 'ready');
});
afterEach(() => {
  closeSshServers();
  agent.close();
  rmSync(dir, { recursive: true });
});

function exec(agentForward: boolean): Promise<ClientChannel> {
  return new Promise((resolve, reject) => {
    // The types of ssh2 leave it out.
    over.exec('x', { agentForward } as object, (error, channel) => (error ? reject(error) : resolve(channel)));
  });
}

function opened(kind: string): Promise<World['sessions'][number]> {
  return eventually(kind, 5_000, async () => world.sessions.find(({ request }) => request.kind === kind));
}

/** What the client's agent says to somebody inside. */
async function ask({ events, peer }: World['sessions'][number]): Promise<string> {
  const decode = createFrameDecoder(FRAME_BYTES_MAX);
  await events.onData('stdout', Buffer.from('request'));
  const [answer]: Buffer[] = await once(peer, 'data');
  return Buffer.concat([...decode(answer ?? Buffer.alloc(0))].map((frame) => frame.payload)).toString();
}

describe('the SSH server', () => {
  test('opens channels to the agent of a client that has offered it, until the session ends', async () => {
    const channel = await exec(true);
    const listener = await opened('listen_agent');
    expect((await opened('exec')).request).toMatchObject({ env: { SSH_AUTH_SOCK: '/agent' } });
    listener.events.onAccepted?.({ connection: 7, host: '', port: 0 });
    const taken = await opened('take');
    expect(taken.request).toEqual({ kind: 'take', connection: 7 });
    expect(await ask(taken)).toBe('identities');
    const closed = once(listener.peer.resume(), 'close');
    channel.close();
    await closed;
  });

  test('has no agent for a session that did not request one', async () => {
    await exec(false);
    expect((await opened('exec')).request).toMatchObject({ env: {} });
    expect(world.sessions).toHaveLength(1);
  });

  test('closes a connection inside if the client refuses its channel', async () => {
    await exec(true);
    const listener = await opened('listen_agent');
    agent.close();
    rmSync(join(dir, 'agent'), { force: true });
    listener.events.onAccepted?.({ connection: 7, host: '', port: 0 });
    const taken = await opened('take');
    await once(taken.peer.resume(), 'close');
  });

  test.each([
    [SSH_CHANNELS_MAX - 2, 1],
    [SSH_CHANNELS_MAX - 1, 0],
  ])('counts it as a channel: after %i others there are %i', async (others, agents) => {
    await Promise.all(Array.from({ length: others }, () => exec(false)));
    await exec(true);
    const last = await eventually('session', 5_000, async () => world.sessions[others + agents]);
    expect(last.request).toMatchObject({ kind: 'exec', env: agents === 1 ? { SSH_AUTH_SOCK: '/agent' } : {} });
    expect(world.sessions.filter(({ request }) => request.kind === 'listen_agent')).toHaveLength(agents);
  });
});

describe('the guest', () => {
  test("listens on a socket that only the image's user can reach, and removes it with the session", async () => {
    const run = createServer().listen(join(dir, 'run'));
    await once(run, 'listening');
    const holder = connect(join(dir, 'run'));
    const [session]: Socket[] = await once(run, 'connection');
    if (session === undefined) throw new Error('no connection');
    const listeners = createListeners(virtualClock(1_000_000));
    listeners.listenAgent(session);
    const [started] = await once(holder, 'data');
    const { path } = JSON.parse(createFrameDecoder(FRAME_BYTES_MAX)(started).next().value?.payload.toString() ?? '');
    expect(statSync(dirname(path)).mode & 0o777).toBe(0o700);
    const program = connect(path);
    const [accepted] = await once(holder, 'data');
    const news = JSON.parse(createFrameDecoder(FRAME_BYTES_MAX)(accepted).next().value?.payload.toString() ?? '');
    expect(news).toEqual({ kind: 'accepted', connection: 1, host: '', port: 0 });
    listeners.take(1)?.end('hello');
    expect(String((await once(program, 'data'))[0])).toBe('hello');
    holder.destroy();
    await once(session, 'close');
    expect(() => statSync(dirname(path))).toThrow('ENOENT');
    run.close();
  });
});
