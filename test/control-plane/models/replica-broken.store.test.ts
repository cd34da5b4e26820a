// Replicas whose server looks well and fails what it is asked.
import { beforeEach, expect, test } from 'vitest';
import type { MadeMachine } from '../../kit/machines.ts';
import type { FakeAnswer, FakeUpstream } from '../../kit/fake-upstream.ts';
import { BEGIN, say } from '../../kit/stream-chunks.ts';
import {
  anotherServer,
  chat,
  live,
  openReplicasForEachTest,
  serverOf,
  startAll,
  tick,
  trusted,
  waiting,
} from './replica-world.ts';

openReplicasForEachTest(() => ({ max_replicas: 1 }));

/** The server of the only replica, on the cheaper machine. The dearer one has a server that works. */
let broken: FakeUpstream;
let other: MadeMachine;
beforeEach(async () => {
  const first = await trusted(1);
  other = await trusted(2);
  broken = await anotherServer();
  serverOf.set(first.machineId, broken);
  const answer = chat();
  await waiting(1);
  await startAll();
  expect((await answer).status).toBe(200);
});

/** Each second somebody calls. */
async function callFor(seconds: number, body: object = {}): Promise<number[]> {
  const answers = [];
  for (let n = 0; n < seconds; n += 1) {
    answers.push(chat(body));
    await tick();
    await startAll();
  }
  await tick();
  return (await Promise.all(answers)).map(({ status }) => status);
}

test('a replica that fails every request is replaced on another machine, although its health checks are fine', async () => {
  broken.usual = () => ({ status: 500, body: { error: { message: 'CUDA error: an illegal memory access' } } });
  const statuses = await callFor(60);
  expect(await live()).toMatchObject([{ state: 'ready', machine_id: other.machineId }]);
  expect(statuses.at(-1)).toBe(200);
});

test('a host that fails customers and answers the readiness check is replaced too', async () => {
  broken.usual = ({ body }) => (body['max_tokens'] === 1 ? {} : { status: 500, body: {} });
  await callFor(60);
  expect(await live()).toMatchObject([{ state: 'ready', machine_id: other.machineId }]);
});

test('a replica that breaks off every stream is replaced', async () => {
  broken.usual = ({ body }) =>
    body['stream'] === true ? { events: [BEGIN, say('Hello')], ending: 'cut' } : { status: 500, body: {} };
  await callFor(60, { stream: true });
  expect(await live()).toMatchObject([{ state: 'ready', machine_id: other.machineId }]);
});

const REFUSAL: FakeAnswer = { status: 400, body: { error: { message: 'bad request' } } };

test('a replica that refuses every request for minutes is replaced', async () => {
  broken.usual = () => REFUSAL;
  const statuses = await callFor(400);
  expect(statuses[0]).toBe(400);
  expect(await live()).toMatchObject([{ state: 'ready', machine_id: other.machineId }]);
  expect(statuses.at(-1)).toBe(200);
});

test('a replica that answers others stays, however many wrong requests a caller sends', async () => {
  const [before] = await live();
  let asked = 0;
  broken.usual = () => ((asked += 1) % 100 === 0 ? {} : REFUSAL);
  await callFor(400);
  expect(await live()).toMatchObject([{ state: 'ready', id: before?.id }]);
});

test('a replica that only wrong requests reach is asked a real question once in five minutes, and stays', async () => {
  const [before] = await live();
  let questions = 0;
  broken.usual = ({ body }) => {
    if (body['temperature'] !== 0) return REFUSAL;
    questions += 1;
    return {};
  };
  await callFor(700);
  expect(await live()).toMatchObject([{ state: 'ready', id: before?.id }]);
  expect(questions).toBe(2);
});

test('a replica that fails some requests, or that has not enough to say, stays', async () => {
  const [before] = await live();
  let asked = 0;
  broken.usual = () => ((asked += 1) % 3 === 0 ? {} : { status: 500, body: {} });
  await callFor(40);
  broken.usual = ({ body }) => (body['temperature'] === 0 ? { body: SILENT } : { status: 500, body: {} });
  await callFor(40);
  expect(await live()).toMatchObject([{ state: 'ready', id: before?.id }]);
});

/** The whole answer of a model that was still thinking. */
const SILENT = { choices: [{ index: 0, message: { role: 'assistant', content: null }, finish_reason: 'length' }] };
