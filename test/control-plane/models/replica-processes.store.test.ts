// Two control planes on one database: a pool starts once for the callers of both, and a replica that drains waits for the requests of both, also
// after an absence.
import { afterEach, beforeEach, expect, test } from 'vitest';
import type { Answer, Api } from '../../contract/api.ts';
import { api, owner } from '../../contract/api-of-test.ts';
import { eventually } from '../../kit/processes.ts';
import {
  chat,
  live,
  openReplicasForEachTest,
  POOL,
  server,
  startAll,
  tick,
  trusted,
  waiting,
} from './replica-world.ts';

openReplicasForEachTest(() => ({ idle_minutes: 1 }));

/** Longer than a process that lives leaves its row as it is. */
const PAUSE_MS = 20_000;

let other: Api;
beforeEach(async () => {
  other = await api.beside();
});
afterEach(async () => {
  await other.world.rooms.gateway.close();
  await other.http.close();
});

const otherChat = (): Promise<Answer> =>
  other.call('POST', '/v1/chat/completions', {
    key: owner.key,
    body: { model: POOL, messages: [{ role: 'user', content: 'hi' }] },
  });

/** A second passes for both, and both drive what is due. */
async function tickBoth(): Promise<void> {
  await tick();
  await loopOfOther();
  await other.world.drive();
}

async function loopOfOther(): Promise<void> {
  const loop = other.world.rooms.replicas.loops.find(({ name }) => name === 'model-replicas');
  await loop?.run(new AbortController().signal);
}

/** @returns the id of a replica that has answered one caller */
async function readyReplica(): Promise<string> {
  await trusted();
  const first = chat();
  await waiting(1);
  const [row] = await startAll();
  await first;
  return row?.id ?? '';
}

/** A request that is at the replica until `finish` is called. */
async function askSlowly(ask: () => Promise<Answer>): Promise<{ answer: Promise<Answer>; finish(): void }> {
  const slow = Promise.withResolvers<void>();
  server.next({ after: slow.promise });
  const answer = ask();
  await server.came(3);
  return { answer, finish: slow.resolve };
}

test('callers of both wait for one start, and both answer with the same replica', async () => {
  await trusted();
  await trusted();
  const answers = [chat(), otherChat()];
  await waiting(1);
  await eventually('a caller of the other process who waits', 5_000, async () =>
    other.world.rooms.replicas.waiting().some(({ count }) => count === 1) ? true : undefined,
  );
  await Promise.all([api.world.drive(), other.world.drive()]);
  expect(await live()).toHaveLength(1);
  await startAll();
  await tickBoth();
  expect((await Promise.all(answers)).map(({ status }) => status)).toEqual([200, 200]);
  expect(new Set(server.asked.map(({ headers }) => headers.host)).size).toBe(1);
});

test('a replica that drains for one process ends only after the request of the other', async () => {
  const id = await readyReplica();
  await loopOfOther();
  const { answer, finish } = await askSlowly(otherChat);
  await loopOfOther();
  await api.world.rooms.replicas.operator.drain(id);
  for (let n = 0; n < 20; n += 1) await tickBoth();
  expect(await live()).toMatchObject([{ state: 'draining' }]);
  finish();
  expect((await answer).status).toBe(200);
  for (let n = 0; n < 5; n += 1) await tickBoth();
  expect(await live()).toEqual([]);
});

test('a process that has died keeps no replica alive', async () => {
  const id = await readyReplica();
  await loopOfOther();
  server.next({ ending: 'stall' });
  const lost = otherChat();
  await server.came(3);
  await loopOfOther();
  await api.world.rooms.replicas.operator.drain(id);
  for (let n = 0; n < 14; n += 1) await tick();
  expect(await live()).toMatchObject([{ state: 'draining' }]);
  for (let n = 0; n < 3; n += 1) await tick();
  expect(await live()).toEqual([]);
  await other.world.rooms.gateway.close();
  await lost;
});

/** A second passes. Only the first process drives what is due, as the primary does. */
async function tickOfPrimary(): Promise<void> {
  await tick();
  await loopOfOther();
}

test('a replica that looks well and fails the callers of another process is replaced', async () => {
  const id = await readyReplica();
  await loopOfOther();
  server.usual = () => ({ status: 500, body: {} });
  const isLive = async (): Promise<boolean> => (await live()).some((replica) => replica.id === id);
  for (let n = 0; n < 60 && (await isLive()); n += 1) {
    await otherChat();
    await tickOfPrimary();
  }
  expect(await isLive()).toBe(false);
});

test('a replica that only wrong requests of another process reach is asked a real question once in five minutes', async () => {
  const id = await readyReplica();
  await loopOfOther();
  let questions = 0;
  server.usual = ({ body }) => {
    if (body['temperature'] !== 0) return { status: 400, body: {} };
    questions += 1;
    return {};
  };
  for (let n = 0; n < 700; n += 1) {
    await otherChat();
    await tickOfPrimary();
  }
  expect(await live()).toMatchObject([{ id, state: 'ready' }]);
  expect(questions).toBe(2);
});

test('a replica that drains keeps its request after this process was paused', async () => {
  const id = await readyReplica();
  const { answer, finish } = await askSlowly(chat);
  await api.world.rooms.replicas.operator.drain(id);
  for (let n = 0; n < 5; n += 1) await tick();
  await api.world.clock.advance(PAUSE_MS);
  // The engine may run before the loop that writes what this process serves.
  await api.world.drive();
  expect(await live()).toMatchObject([{ state: 'draining' }]);
  finish();
  expect((await answer).status).toBe(200);
  for (let n = 0; n < 20; n += 1) await tick();
  expect(await live()).toEqual([]);
});

test('a replica that drains keeps the request of another process after the database was away from both', async () => {
  const id = await readyReplica();
  await loopOfOther();
  const { answer, finish } = await askSlowly(otherChat);
  await loopOfOther();
  await api.world.rooms.replicas.operator.drain(id);
  for (let n = 0; n < 5; n += 1) await tickBoth();
  await api.world.clock.advance(PAUSE_MS);
  await tick();
  expect(await live()).toMatchObject([{ state: 'draining' }]);
  await tickBoth();
  finish();
  expect((await answer).status).toBe(200);
  for (let n = 0; n < 20; n += 1) await tickBoth();
  expect(await live()).toEqual([]);
});

test('a replica that answers does not drain because this process was paused for longer than the idle time', async () => {
  await readyReplica();
  const { answer, finish } = await askSlowly(chat);
  for (let n = 0; n < 5; n += 1) await tick();
  await api.world.clock.advance(70_000);
  await api.world.drive();
  for (let n = 0; n < 5; n += 1) await tick();
  expect(await live()).toMatchObject([{ state: 'ready' }]);
  finish();
  expect((await answer).status).toBe(200);
});
