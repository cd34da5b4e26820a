// The memory bound of all SSH connections of one holder: with counted bytes, and with real clients whose programs never read.
import { once } from 'node:events';
import { PassThrough } from 'node:stream';
import { afterEach, beforeEach, describe, expect, test } from 'vitest';
import { type BufferBudget, createBufferBudget } from '../../../agent/holder/ssh-buffers.ts';
import { SSH_BUFFERED_BYTES_MAX } from '../../../shared/limits.ts';
import { eventually } from '../../kit/processes.ts';
import { client, closeSshServers, exec, startWorld } from '../ssh-server.ts';

const MIB = 1024 ** 2;

describe('a budget', () => {
  let budget: BufferBudget;
  let held: Map<PassThrough, number>;
  beforeEach(() => {
    budget = createBufferBudget();
    held = new Map();
  });
  const open = (bytes: number): PassThrough => {
    const stream = new PassThrough();
    held.set(stream, bytes);
    budget.enter(stream, () => held.get(stream) ?? 0);
    budget.grown(stream);
    return stream;
  };

  test('cuts the connection with the most buffered bytes, and no other', () => {
    const streams = [20 * MIB, 60 * MIB, 48 * MIB].map(open);
    expect(streams.map((stream) => stream.destroyed)).toEqual([false, false, false]);
    open(1);
    expect(streams.map((stream) => stream.destroyed)).toEqual([false, true, false]);
  });

  test('counts the bytes that are buffered now, not earlier ones', () => {
    const first = open(SSH_BUFFERED_BYTES_MAX);
    held.set(first, 0);
    expect(open(SSH_BUFFERED_BYTES_MAX).destroyed).toBe(false);
    expect(first.destroyed).toBe(false);
  });

  test('counts no bytes of a closed connection', async () => {
    const first = open(SSH_BUFFERED_BYTES_MAX);
    first.destroy();
    await new Promise((resolve) => void first.once('close', resolve));
    expect(open(SSH_BUFFERED_BYTES_MAX).destroyed).toBe(false);
  });
});

describe('clients whose programs never read', () => {
  afterEach(closeSshServers);

  test('lose the connection with the most buffered bytes; the others go on, and new ones are accepted', async () => {
    const world = await startWorld();
    const clients = [client(world), client(world)];
    await Promise.all(clients.map((each) => once(each, 'ready')));
    const channels = await Promise.all(clients.flatMap((each) => Array.from({ length: 48 }, () => exec(each))));
    const window = Buffer.alloc(2 * MIB);
    for (const channel of channels) channel.on('error', () => undefined).write(window);
    const cut = (): boolean[] => world.streams.map((stream) => stream.destroyed);
    await eventually('a cut', 60_000, async () => cut().includes(true) || undefined);
    expect(cut().filter((isCut) => isCut)).toHaveLength(1);
    const survivor = clients[cut().indexOf(false)];
    if (survivor === undefined) throw new Error('both were cut');
    await exec(survivor);
    const other = client(world);
    await once(other, 'ready');
    await exec(other);
  });
});
