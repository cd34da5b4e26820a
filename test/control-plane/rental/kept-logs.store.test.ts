// What is kept of the log of an instance that ended with its program, after its host has removed the container.
import { type Duplex, duplexPair } from 'node:stream';
import { afterEach, beforeEach, describe, expect, test } from 'vitest';
import { z } from 'zod';
import { brought } from '../../../control-plane/brings.ts';
import { countRow, text } from '../../../control-plane/base/db/columns.ts';
import { sql } from '../../../control-plane/base/db/db.ts';
import { StreamError } from '../../../control-plane/fleet/link/streams.ts';
import { LOG_ARRIVES_MS } from '../../../control-plane/rental/instances/plan.ts';
import { findInstance } from '../../../control-plane/rental/instances/store.ts';
import { openKeptLogs } from '../../../control-plane/rental/journal/kept-logs.ts';
import { KEPT_LOG_DAYS, KEPT_LOG_KIB, KEPT_LOGS_PER_ORG_MAX } from '../../../shared/api/instance-journal.ts';
import { LOG_FOLLOWERS_PER_ORG_MAX, LOG_LINES_MAX } from '../../../shared/limits.ts';
import { createLog } from '../../../shared/log.ts';
import type { LogLine } from '../../../shared/protocol/workload.ts';
import { openWorld, type World, type WorldAccount } from '../../kit/world.ts';

const NEVER = new AbortController().signal;
const ENDED = { code: 3, signal: null };

const lineAt = (second: number, line: string): LogLine => ({
  at: new Date(Date.UTC(2026, 0, 1) + second * 1_000).toISOString().replace('Z', '000000Z'),
  stream: 'stdout',
  line,
});
const PRINTED = [lineAt(1, 'begin'), lineAt(2, 'working'), lineAt(3, 'the end')];
const LAST = { tail: LOG_LINES_MAX, since: undefined };

let world: World;
let who: WorldAccount;
/** What the host sends of each log; undefined: the container is gone. */
let onHost: LogLine[] | undefined;
let openStream: () => Promise<Duplex>;
let logged: string[];
beforeEach(async () => {
  logged = [];
  onHost = PRINTED;
  openStream = async () => {
    if (onHost === undefined) throw new StreamError('refused', 'there is no container');
    const [near, far] = duplexPair();
    far.end(onHost.map((line) => `${JSON.stringify(line)}\n`).join(''));
    return near;
  };
  const log = createLog('test', 'warn', { write: (line: string) => void logged.push(line) });
  world = await openWorld(1, { openStream: () => openStream(), log });
  await world.machine();
  who = await world.customer(100_000);
});
afterEach(async () => {
  await world.verify();
  await world.close();
});

const logs = () => world.rooms.logs;
async function exits(id: string): Promise<void> {
  await world.observe(id, { phase: 'running', host_key: 'ssh-ed25519 AAAA', main_exit: ENDED });
  await world.drive();
  await world.clock.advance(LOG_ARRIVES_MS);
  await world.drive();
}
/** A job that has ended, and its container is gone. */
async function ended(): Promise<string> {
  const id = await world.run(who, { auto_terminate_on_exit: true });
  await exits(id);
  await world.observe(id, { phase: 'removed' });
  await world.drive();
  expect(await findInstance(world.db.read, id)).toMatchObject({ status: 'terminated' });
  onHost = undefined;
  return id;
}
async function followed(id: string, wish = LAST): Promise<LogLine[]> {
  const { lines } = await logs().follow({ ...who, scopes: [] }, id, wish);
  const all: LogLine[] = [];
  for await (const line of lines) all.push(line);
  return all;
}

test('the log of a program is read and followed to its last line after its container is gone', async () => {
  const id = await ended();
  expect(await logs().read(who.orgId, id, LAST)).toEqual(PRINTED);
  expect(await followed(id)).toEqual(PRINTED);
});

test('a reader gets the lines that it asks for', async () => {
  const id = await ended();
  expect(await logs().read(who.orgId, id, { ...LAST, tail: 1 })).toEqual(PRINTED.slice(-1));
  expect(await logs().read(who.orgId, id, { ...LAST, tail: 0 })).toEqual([]);
  expect(await followed(id, { ...LAST, since: PRINTED[0]?.at as never })).toEqual(PRINTED.slice(1));
});

test('somebody who follows a kept log takes no place of those who follow the log of a host', async () => {
  const id = await ended();
  for (let nth = 0; nth <= LOG_FOLLOWERS_PER_ORG_MAX; nth += 1) expect(await followed(id)).toEqual(PRINTED);
});

test('another organisation finds nothing', async () => {
  const id = await ended();
  const { orgId } = await world.customer(1);
  await expect(logs().read(orgId, id, LAST)).rejects.toMatchObject({ code: 'not_found' });
});

test('a reader who comes while the container is being removed gets what is kept', async () => {
  const id = await world.run(who, { auto_terminate_on_exit: true });
  const plain = openStream;
  openStream = async () => {
    openStream = plain;
    await exits(id);
    throw new StreamError('refused', 'there is no container');
  };
  expect(await followed(id)).toEqual(PRINTED);
});

test('an instance that runs shows the log of its host, and not what was kept for an end that did not come', async () => {
  const id = await world.run(who, { auto_terminate_on_exit: true });
  await logs().keep({ id, org_id: who.orgId });
  onHost = [lineAt(9, 'it runs again')];
  expect(await logs().read(who.orgId, id, LAST)).toEqual(onHost);
  onHost = undefined;
  await expect(logs().read(who.orgId, id, LAST)).rejects.toMatchObject({ code: 'logs_unavailable' });
});

test('an instance whose program runs again while its log is read runs on', async () => {
  const id = await world.run(who, { auto_terminate_on_exit: true });
  const plain = openStream;
  openStream = async () => {
    openStream = plain;
    await world.observe(id, { phase: 'running', main_exit: null });
    return plain();
  };
  await exits(id);
  expect(await findInstance(world.db.read, id)).toMatchObject({ status: 'running', main_exit: null });
});

test.each([
  ['', 5_000, 0],
  [', also if the clock is set back meanwhile', -3_600_000, -3_600_000],
])('the log of a batch job whose container dies is kept, and the wait is not charged%s', async (_case, ms, sinceMs) => {
  const id = await world.run(who, { auto_terminate_on_exit: true });
  const diedMs = world.clock.now();
  const plain = openStream;
  openStream = async () => {
    world.clock.step(ms);
    return plain();
  };
  await world.observe(id, { phase: 'failed', failure_code: 'container_died' });
  await world.drive();
  expect(await findInstance(world.db.read, id)).toMatchObject({ status: 'error' });
  expect(await world.sinceMs(id, 'instance.failed')).toBe(diedMs + sinceMs);
  onHost = undefined;
  expect(await logs().read(who.orgId, id, LAST)).toEqual(PRINTED);
});

test('the log of a batch job that its runtime limit ends is kept', async () => {
  const id = await world.run(who, { auto_terminate_on_exit: true, auto_terminate_hours: 1 });
  await world.clock.advance(3_600_000);
  await world.drive();
  await world.observe(id, { phase: 'removed' });
  await world.drive();
  expect(await findInstance(world.db.read, id)).toMatchObject({ status: 'terminated' });
  onHost = undefined;
  expect(await logs().read(who.orgId, id, LAST)).toEqual(PRINTED);
});

test('nothing is kept of an instance that ends otherwise', async () => {
  const id = await world.run(who);
  await world.end(who, id);
  onHost = undefined;
  await expect(logs().read(who.orgId, id, LAST)).rejects.toMatchObject({ code: 'logs_unavailable' });
});

describe('a host that does not send the log', () => {
  test.each<[string, () => Promise<Duplex>]>([
    ['because it has no container', () => Promise.reject(new StreamError('refused', 'there is no container'))],
    ['because it is away', () => Promise.reject(new StreamError('link', 'the host is not connected'))],
  ])('%s keeps no instance from its end', async (_why, open) => {
    openStream = open;
    const id = await world.run(who, { auto_terminate_on_exit: true });
    await exits(id);
    expect(await findInstance(world.db.read, id)).toMatchObject({ status: 'stopping', main_exit: ENDED });
    expect(logged.filter((line) => line.includes('could not be kept'))).toHaveLength(1);
  });

  test('to its end keeps no instance from its end, and its customer does not pay for that time', async () => {
    const [near] = duplexPair();
    openStream = async () => near;
    const id = await world.run(who, { auto_terminate_on_exit: true });
    await world.observe(id, { phase: 'running', main_exit: ENDED });
    const endedMs = world.clock.now();
    await world.clock.advance(LOG_ARRIVES_MS);
    const driving = world.drive();
    await expect.poll(() => near.listenerCount('data') + near.listenerCount('readable')).toBeGreaterThan(0);
    await world.clock.advance(10_000);
    await driving;
    expect(await findInstance(world.db.read, id)).toMatchObject({ status: 'stopping' });
    expect(await world.sinceMs(id, 'instance.stopping')).toBe(endedMs);
  });
});

describe('somebody who follows the log of a program that has ended', () => {
  /** Takes lines for `ms`, one in each 500 ms, while the instance waits for its end. `finish` lets it end. */
  async function following(ms: number): Promise<{ status(): Promise<string | undefined>; finish(): Promise<void> }> {
    const [near, far] = duplexPair();
    const plain = openStream;
    openStream = async () => {
      openStream = plain;
      return near;
    };
    const id = await world.run(who, { auto_terminate_on_exit: true });
    const { lines, stop } = await logs().follow({ ...who, scopes: [] }, id, LAST);
    const reader = lines[Symbol.asyncIterator]();
    const take = async (): Promise<void> => {
      far.write(`${JSON.stringify(lineAt(1, 'much'))}\n`);
      await reader.next();
    };
    await world.observe(id, { phase: 'running', main_exit: ENDED });
    await world.clock.advance(LOG_ARRIVES_MS);
    await take();
    const before = world.clock.waiting();
    const driving = world.drive();
    await expect.poll(() => world.clock.waiting()).toBeGreaterThan(before);
    for (let passed = 0; passed < ms; passed += 500) {
      await world.clock.advance(500);
      await take();
    }
    return {
      status: async () => (await findInstance(world.db.read, id))?.status,
      finish: async () => {
        await world.clock.advance(10_000);
        await driving;
        stop();
      },
    };
  }

  test('reads on before the container goes', async () => {
    const { status, finish } = await following(9_500);
    expect(await status()).toBe('running');
    await finish();
    expect(await status()).toBe('stopping');
  });

  test('does not hold up the end of another instance', async () => {
    await world.machine();
    const [near, far] = duplexPair();
    const plain = openStream;
    openStream = async () => {
      openStream = plain;
      return near;
    };
    const followedId = await world.run(who);
    const { lines, stop } = await logs().follow({ ...who, scopes: [] }, followedId, LAST);
    const id = await world.run(who, { auto_terminate_on_exit: true });
    await world.observe(id, { phase: 'running', main_exit: ENDED });
    await world.clock.advance(LOG_ARRIVES_MS);
    far.write(`${JSON.stringify(lineAt(1, 'much'))}\n`);
    await lines[Symbol.asyncIterator]().next();
    await world.drive();
    expect(await findInstance(world.db.read, id)).toMatchObject({ status: 'stopping' });
    stop();
  });

  test('has no more than ten seconds for that', async () => {
    const { status, finish } = await following(11_000);
    await expect.poll(status).toBe('stopping');
    await finish();
  });
});

describe('what is kept', () => {
  const kept = () => openKeptLogs(world.core);
  const count = async (): Promise<number | undefined> =>
    (await world.db.read.one(countRow, sql`select count(*) as count from kept_logs`))?.count;

  test('is the end of a long log', async () => {
    const chars = 1_024;
    onHost = Array.from({ length: LOG_LINES_MAX }, (_, i) => lineAt(i, String(i).padEnd(chars, '.')));
    const whole = onHost;
    const id = await ended();
    expect(await logs().read(who.orgId, id, LAST)).toEqual(whole.slice((-KEPT_LOG_KIB * 1024) / chars));
  });

  test('cannot be read in the database', async () => {
    const id = await ended();
    const rows = await world.db.read.all(z.object({ sealed_lines: text }), sql`select sealed_lines from kept_logs`);
    expect(rows).toHaveLength(1);
    const plain = rows.map((row) => Buffer.from(row.sealed_lines, 'base64url').toString('latin1')).join('');
    expect(plain).not.toContain('working');
    expect(await kept().find(id)).toEqual(PRINTED);
  });

  test('is removed after a week', async () => {
    const id = await ended();
    await world.clock.advance(KEPT_LOG_DAYS * 86_400_000 - 1_000);
    const forget = brought(world.brings(), 'forgets').find(({ what }) => what === 'kept_logs');
    expect(await forget?.run(NEVER)).toBe(0);
    expect(await kept().find(id)).toEqual(PRINTED);
    await world.clock.advance(1_000);
    expect(await forget?.run(NEVER)).toBe(1);
    await expect(logs().read(who.orgId, id, LAST)).rejects.toMatchObject({ code: 'logs_unavailable' });
  });

  test(`is at most ${KEPT_LOGS_PER_ORG_MAX} logs of an organisation, the newest ones`, async () => {
    await kept().keep({ orgId: 'other', instanceId: 'i-other' }, PRINTED);
    for (let nth = 0; nth <= KEPT_LOGS_PER_ORG_MAX; nth += 1) {
      await world.clock.advance(1);
      await kept().keep({ orgId: who.orgId, instanceId: `i-${nth}` }, []);
    }
    expect(await count()).toBe(KEPT_LOGS_PER_ORG_MAX + 1);
    expect(await kept().find('i-0')).toBeUndefined();
    expect(await kept().find('i-1')).toEqual([]);
    expect(await kept().find('i-other')).toEqual(PRINTED);
  });
});
