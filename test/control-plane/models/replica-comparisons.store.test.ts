// Spot checks between replicas: the host that alone answers otherwise is found, and nobody is accused on one word against another.
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { sql } from '../../../control-plane/base/db/db.ts';
import { findMachine } from '../../../control-plane/fleet/supply/store.ts';
import { api } from '../../contract/api-of-test.ts';
import { dripping, type FakeAnswer, type FakeUpstream, HELLO } from '../../kit/fake-upstream.ts';
import type { MadeMachine } from '../../kit/machines.ts';
import { whileTimePasses } from '../../kit/virtual-clock.ts';
import {
  anotherServer,
  live,
  loop,
  openReplicasForEachTest,
  POOL,
  server,
  serverOf,
  startAll,
  tick,
  trusted,
} from './replica-world.ts';

let replicas = 3;
let engine = 'vllm';
openReplicasForEachTest(() => ({ engine }));

/** A machine whose server gives another answer to the questions of a comparison. */
async function liar(): Promise<{ machine: MadeMachine; liar: FakeUpstream }> {
  const machine = await trusted();
  const made = await anotherServer();
  const [choice] = HELLO.choices;
  made.usual = () => ({
    body: { ...HELLO, choices: [{ ...choice, message: { role: 'assistant', content: 'Lies.' } }] },
  });
  serverOf.set(machine.machineId, made);
  return { machine, liar: made };
}

async function allReady(): Promise<void> {
  await api.world.rooms.replicas.operator.scale(POOL, { min: replicas, max: 4 });
  await loop('model-replicas');
  await api.world.drive();
  await startAll();
  await tick();
  expect((await live()).map(({ state }) => state)).toEqual(Array.from({ length: replicas }, () => 'ready'));
}

async function compare(): Promise<void> {
  await api.world.clock.advance(10 * 60_000);
  await loop('replica-comparisons');
}

const isTrusted = async ({ machineId }: MadeMachine): Promise<boolean | undefined> =>
  (await findMachine(api.world.db.read, machineId))?.trusted;
const disagreements = (): unknown => api.world.rooms.replicas.counts.disagreements();

describe('among three replicas', () => {
  test('a host that alone answers otherwise twice loses its trust, its listing and its replica', async () => {
    replicas = 3;
    const honest = [await trusted(), await trusted()];
    const { machine } = await liar();
    await allReady();
    for (let n = 0; n < 12 && (await isTrusted(machine)) === true; n += 1) await compare();
    expect(await findMachine(api.world.db.read, machine.machineId)).toMatchObject({
      trusted: false,
      inventory_fault: expect.stringContaining('answers otherwise than other servers do'),
    });
    expect(await Promise.all(honest.map(isTrusted))).toEqual([true, true]);
    expect((await live()).filter(({ machine_id: id }) => id === machine.machineId)).toEqual([]);
  });

  test('a host whose replica runs another deployment than the others is not compared with them', async () => {
    replicas = 3;
    await trusted();
    await trusted();
    const { machine } = await liar();
    await allReady();
    const odd = (await live()).find(({ machine_id: id }) => id === machine.machineId);
    const former = JSON.stringify({ ...odd?.deployment, args: ['--former'] });
    await api.world.db.tx('test.former', (tx) =>
      tx.run(sql`update model_replicas set deployment = ${former} where id = ${odd?.id ?? ''}`),
    );
    for (let n = 0; n < 12; n += 1) await compare();
    expect(disagreements()).toEqual([]);
    expect(await isTrusted(machine)).toBe(true);
  });

  test('one odd answer is not enough, and an equal one clears it', async () => {
    replicas = 3;
    await trusted();
    await trusted();
    const { machine, liar: once } = await liar();
    await allReady();
    const lies = once.usual;
    for (let n = 0; n < 12 && (await live()).every((row) => row.disagreements === 0); n += 1) await compare();
    once.usual = () => ({});
    for (let n = 0; n < 12; n += 1) await compare();
    expect((await live()).map((row) => row.disagreements)).toEqual([0, 0, 0]);
    once.usual = lies;
    expect(await isTrusted(machine)).toBe(true);
  });
});

test('two replicas that disagree are both left alone, and a metric shows it to the operator', async () => {
  replicas = 2;
  const honest = await trusted();
  const { machine } = await liar();
  await allReady();
  await compare();
  await compare();
  expect(disagreements()).toEqual([{ poolId: POOL, count: 2 }]);
  expect(await Promise.all([honest, machine].map(isTrusted))).toEqual([true, true]);
});

test('a host whose replica answers byte by byte holds no comparison up', async () => {
  replicas = 2;
  await trusted();
  const { liar: slow } = await liar();
  await allReady();
  const { clock } = api.world;
  slow.usual = () => dripping(clock, ' ');
  await clock.advance(10 * 60_000);
  const startMs = clock.monotonicMs();
  const gaveUp = slow.wereLeft(slow.left() + 1).then(() => clock.monotonicMs());
  await whileTimePasses(clock, loop('replica-comparisons'), 250);
  expect((await gaveUp) - startMs).toBeLessThan(90_000);
  expect([slow.asked.length, disagreements()]).toEqual([2, []]);
});

test('replicas that agree are asked the same question in the form of a customer', async () => {
  replicas = 2;
  await trusted();
  await trusted();
  await allReady();
  const before = server.asked.length;
  await compare();
  const compared = server.asked.slice(before).map(({ body }) => body);
  const [first, second, ...others] = compared.map((body) => body['messages']);
  // These are the fields of a customer's request in the order of the gateway.
  expect(compared.map((body) => Object.keys(body))).toEqual(
    [1, 2].map(() => ['messages', 'max_tokens', 'temperature', 'model']),
  );
  expect(first).toEqual(second);
  expect(first).toMatchObject([{ role: 'user' }]);
  expect([others, disagreements()]).toEqual([[], []]);
  await loop('replica-comparisons');
  expect(server.asked).toHaveLength(before + 2);
});

describe('with replicas of one supplier', () => {
  /** The machines belong to one supplier from now on. */
  const unite = async (machines: readonly MadeMachine[]): Promise<void> => {
    for (const { machineId } of machines)
      await api.world.db.tx('test.unite', (tx) =>
        tx.run(sql`update machines set supplier_id = ${machines[0]?.supplierId ?? ''} where id = ${machineId}`),
      );
  };
  /** A server of the operator's own for the tier. */
  const addOwn = async (): Promise<FakeUpstream> => {
    const own = await anotherServer();
    const { catalog } = api.world.rooms;
    catalog.replace(
      catalog.models.map((model) => {
        const [upstream] = model.upstreams;
        if (model.economy === undefined || upstream === undefined) return model;
        return { ...model, economy: { ...model.economy, upstreams: [{ ...upstream, base_url: own.baseUrl }] } };
      }),
    );
    return own;
  };

  test('two of them that lie do not outvote an honest one of another supplier', async () => {
    replicas = 3;
    const honest = await trusted();
    const liars = [await liar(), await liar()].map(({ machine }) => machine);
    await unite(liars);
    await allReady();
    for (let n = 0; n < 12; n += 1) await compare();
    expect(disagreements()).toEqual([{ poolId: POOL, count: 12 }]);
    expect(await Promise.all([honest, ...liars].map(isTrusted))).toEqual([true, true, true]);
  });

  test('a server of the operator decides before other replicas do', async () => {
    replicas = 4;
    const honest = await trusted();
    const liars = [await liar(), await liar(), await liar()].map(({ machine }) => machine);
    const own = await addOwn();
    await allReady();
    for (let n = 0; n < 24; n += 1) await compare();
    expect(own.asked.length).toBeGreaterThan(0);
    expect(await isTrusted(honest)).toBe(true);
    expect(await Promise.all(liars.map(isTrusted))).toContain(false);
  });

  test('two machines of the only supplier are compared if a server of the operator can decide', async () => {
    replicas = 2;
    const honest = await trusted();
    const { machine } = await liar();
    await unite([honest, machine]);
    await allReady();
    await compare();
    expect(disagreements()).toEqual([]);
    await addOwn();
    for (let n = 0; n < 2; n += 1) await compare();
    expect(await Promise.all([honest, machine].map(isTrusted))).toEqual([true, false]);
  });
});

describe('with llama.cpp, which gets every request of a customer as a stream', () => {
  beforeAll(() => {
    engine = 'llama_cpp';
  });
  afterAll(() => {
    engine = 'vllm';
  });

  test('the questions ask for a stream too, and its text is compared', async () => {
    replicas = 2;
    await trusted();
    const { liar: other } = await liar();
    const said = (...contents: string[]): FakeAnswer => ({
      events: [...contents.map((content) => ({ choices: [{ delta: { content } }] })), 'data: [DONE]\n\n'],
    });
    await allReady();
    const before = server.asked.length;
    server.usual = () => said('Hel', 'lo.');
    other.usual = () => said('Hello', '.');
    await compare();
    expect(server.asked.slice(before).map(({ body }) => body['stream'])).toEqual([true]);
    expect(disagreements()).toEqual([]);
    other.usual = () => said('Lies.');
    await compare();
    expect(disagreements()).toEqual([{ poolId: POOL, count: 1 }]);
  });
});
