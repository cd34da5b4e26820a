// A world whose economy tier is served by replicas: each host is played by the test, and its server is a scripted one over real HTTP.
import { once } from 'node:events';
import { connect } from 'node:net';
import type { Duplex } from 'node:stream';
import { afterEach, beforeEach } from 'vitest';
import { liveReplicas, loadsOf, type ReplicaRow } from '../../../control-plane/models/replicas/store.ts';
import type { Settings } from '../../../control-plane/settings.ts';
import type { Answer } from '../../contract/api.ts';
import { api, openApiForEachTest, owner } from '../../contract/api-of-test.ts';
import { type FakeUpstream, openFakeUpstream } from '../../kit/fake-upstream.ts';
import type { MadeMachine } from '../../kit/machines.ts';
import { fleetModels } from '../../kit/models.ts';
import { eventually } from '../../kit/processes.ts';

export const POOL = 'acme/tiny:economy';

/** The server that every host runs, unless `serverOf` names another for a machine. */
export let server: FakeUpstream;
/** Servers of machines whose answers differ; null: nothing listens there. */
export let serverOf: Map<string, FakeUpstream | null>;
let servers: FakeUpstream[];

/** Every test of the file gets its own world. */
export function openReplicasForEachTest(deployment: () => object = () => ({}), settings: Partial<Settings> = {}): void {
  beforeEach(async () => {
    servers = [];
    serverOf = new Map();
    server = await anotherServer();
  });
  openApiForEachTest(() => ({
    settings: { ...settings, models: fleetModels(deployment()) },
    openStream: (machineId, _workloadId, target) => openStream(machineId, target.kind),
  }));
  afterEach(async () => {
    for (const each of servers) await each.close();
  });
}

export async function anotherServer(): Promise<FakeUpstream> {
  const made = await openFakeUpstream();
  servers.push(made);
  return made;
}

async function openStream(machineId: string, kind: string): Promise<Duplex> {
  const found = serverOf.get(machineId);
  if (kind !== 'tcp' || found === null) throw new Error('nothing listens on port 8000 of the container');
  const socket = connect(Number(new URL((found ?? server).baseUrl).port), '127.0.0.1');
  await once(socket, 'connect');
  return socket;
}

/** A machine that the operator trusts. */
export async function trusted(dollars = 2): Promise<MadeMachine> {
  const machine = await api.world.machine({ dollars });
  await api.world.rooms.supply.setTrusted(machine.machineId, true);
  return machine;
}

export function chat(body: object = {}): Promise<Answer> {
  return api.call('POST', '/v1/chat/completions', {
    key: owner.key,
    body: { model: POOL, messages: [{ role: 'user', content: 'hi' }], ...body },
  });
}

/** Replicas that have not ended, the oldest first. */
export function live(): Promise<ReplicaRow[]> {
  return liveReplicas(api.world.db.read);
}

/** Waits until the given number of requests wait and the first one has woken the pool, and drives what is due then. */
export async function waiting(count: number): Promise<void> {
  await eventually('requests that wait', 5_000, async () => {
    const pool = api.world.rooms.replicas.waiting().find((each) => each.count === count);
    if (pool === undefined) return undefined;
    const stored = await loadsOf(api.world.db.read, pool.poolId);
    return stored.some((load) => load.waiting > 0) ? true : undefined;
  });
  await api.world.drive();
}

/** The hosts report that the containers of all replicas run, and everything that is due is driven. */
export async function startAll(): Promise<ReplicaRow[]> {
  for (const { instance_id: instanceId, state } of await live())
    if (state === 'starting' && instanceId !== null) await api.world.start(instanceId);
  return live();
}

/** One second passes: the loop runs, and what is due is driven. */
export async function tick(ms = 1_000): Promise<void> {
  await api.world.clock.advance(ms);
  await loop('model-replicas');
  await api.world.drive();
}

export async function loop(name: string): Promise<void> {
  const found = api.world.rooms.replicas.loops.find((each) => each.name === name);
  await found?.run(new AbortController().signal);
}
