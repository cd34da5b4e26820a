// What the steps of a walk do to a life. A step does nothing if what it is about is not there.
import { expect } from 'vitest';
import { findInstance } from '../../../../control-plane/rental/instances/store.ts';
import type { ApiAccount } from '../../../contract/api.ts';
import { newPublicKey } from '../../../contract/paged-lists.ts';
import { linkHost, loseHost } from '../../../kit/machines.ts';
import { carryAll } from '../webhooks/fixture.ts';
import type { Host } from './host.ts';
import { firstOf, instanceAt, type Life, orRefused, ownerAt, pick, send } from './life.ts';
import { publicEvents, unfinished } from './promises.ts';
import type { Step } from './steps.ts';

/** Time between two rounds of the loops. Shorter than the time after which a probe is repeated. */
const ROUND_MS = 5_000;
const RESTART_MS = 1_000;
const HOUR_MS = 3_600_000;
const DAY_MS = 24 * HOUR_MS;
/** Past every deadline, and the longest wait between two attempts of a delivery. */
const SETTLE_HOURS_MAX = 8;
const ENDPOINTS = 4;
const GPU = { gpu_type: 'H100_SXM' };
const EVENT_TYPES = ['instance.creating', 'instance.running', 'instance.terminated', 'instance.failed'];

type StepOf<K extends Step['do'], S = Step> = S extends { do: infer D } ? (K extends D ? S & { do: K } : never) : never;
type Acts = { [K in Step['do']]: (life: Life, step: StepOf<K>) => Promise<unknown> };

export async function take(life: Life, step: Step): Promise<void> {
  // Sound because the table gives each kind of step to its own act.
  const act = ACTS[step.do] as (life: Life, step: Step) => Promise<unknown>;
  await act(life, step);
}

/** Everybody does what they should. Returns what is still unfinished then. */
export async function settle(life: Life): Promise<string[]> {
  life.api.world.probeAnswers.clear();
  life.receivers.answerWith(204);
  for (const host of life.hosts) {
    await orRefused(life.api.world.rooms.supply.approve(host.machineId));
    await offer(life, host, true);
    await link(life, host, true);
  }
  for (const [id, { owner }] of life.endpoints) {
    await send(life, owner, ['PATCH', `/v1/webhook-endpoints/${id}`, { enabled: true }]);
  }
  for (let hours = 0; hours < SETTLE_HOURS_MAX; hours += 1) {
    await everybodyWorks(life, { rounds: 4 });
    if ((await unfinished(life.api.world)).length === 0) return [];
    await life.api.world.clock.advance(HOUR_MS);
  }
  return unfinished(life.api.world);
}

async function everybodyWorks(life: Life, { rounds }: { rounds: number }): Promise<void> {
  for (let round = 0; round < rounds; round += 1) {
    for (const host of life.hosts) await host.work(life.api.world);
    await runLoops(life, 1);
  }
}

const ACTS: Acts = {
  launch,
  work: everybodyWorks,
  host: async (life, { machine }) => pick(life.hosts, machine)?.work(life.api.world),
  report,
  probe: async (life, { which, ok }) =>
    life.api.world.probeAnswers.set(
      instanceAt(life, which)[0],
      ok ? { ok } : { ok, leg: 'endpoint', detail: 'no answer' },
    ),
  delete: (life, { which }) => {
    const [id, owner] = instanceAt(life, which);
    return send(life, owner, ['DELETE', `/v1/instances/${id}`]);
  },
  rename: (life, { which }) => {
    const [id, owner] = instanceAt(life, which);
    return send(life, owner, ['PATCH', `/v1/instances/${id}`, { name: 'renamed' }]);
  },
  link: (life, { machine, up }) => link(life, pick(life.hosts, machine), up),
  listing: (life, { machine, on }) => {
    const { supply } = life.api.world.rooms;
    const id = pick(life.hosts, machine)?.machineId ?? '';
    return orRefused(on ? supply.approve(id) : supply.suspend(id));
  },
  offer: (life, { machine, on }) => offer(life, pick(life.hosts, machine), on),
  contract,
  suspend: operate,
  resume: operate,
  cancel: operate,
  reassign: operate,
  extend: (life, { which }) => {
    const { rooms, clock } = life.api.world;
    return orRefused(rooms.reservations.extend(pick(life.contracts, which) ?? '', clock.now() + 5 * DAY_MS));
  },
  store,
  forget: async (life, { who, what }) => {
    const owner = ownerAt(life, who);
    const id = await firstOf(life, owner, `/v1/${what}`);
    return send(life, owner, ['DELETE', `/v1/${what}/${id ?? 'none'}`]);
  },
  subscribe,
  rotate: onEndpoint(async ({ life, owner, path, url }) => {
    const { json } = await life.api.call('POST', `${path}/rotate-secret`, { key: owner.key });
    life.receivers.trust(url, String(json['secret']));
  }),
  switch: onEndpoint(({ life, owner, path, who }) => send(life, owner, ['PATCH', path, { enabled: who % 3 !== 0 }])),
  retry: onEndpoint(async ({ life, owner, path, url }) => {
    life.receivers.hasten(url);
    const delivery = await firstOf(life, owner, `${path}/deliveries`);
    return send(life, owner, ['POST', `${path}/deliveries/${delivery ?? 'none'}/retry`]);
  }),
  unsubscribe: onEndpoint(({ life, owner, path, url }) => {
    life.endpoints.delete(path.replace(/.*\//, ''));
    life.receivers.close(url);
    return send(life, owner, ['DELETE', path]);
  }),
  answer: async (life, { status }) => life.receivers.answerWith(status),
  wait: (life, { seconds }) => life.api.world.clock.advance(seconds * 1000),
  loops: (life, { rounds }) => runLoops(life, rounds),
  restart: async (life) => {
    // No process starts in the millisecond in which another has died; ids are in order within a process alone.
    await life.api.world.clock.advance(RESTART_MS);
    life.api = await life.api.restart();
  },
};

async function launch(life: Life, step: StepOf<'launch'>): Promise<void> {
  const owner = ownerAt(life, step.who);
  const { tier, gpus, hours, disk } = step;
  const login = step.what === 'private' ? await firstOf(life, owner, '/v1/registry-credentials') : undefined;
  const key = step.hasKeys ? await firstOf(life, owner, '/v1/ssh-keys') : undefined;
  const what = {
    image: { ...GPU, image: 'busybox' },
    private: { ...GPU, image: 'ghcr.io/acme/app:1', registry_credential_id: login ?? 'rc_none' },
    template: { ...(tier === 'reserved' ? GPU : {}), template_id: 'jupyter', env: { HF_TOKEN: 'a secret' } },
    environment: { ...GPU, environment: 'certified:pytorch' },
  };
  await send(life, owner, [
    'POST',
    '/v1/instances',
    {
      ...what[step.what],
      gpu_count: gpus,
      tier,
      ...(hours === undefined ? {} : { auto_terminate_hours: hours }),
      ...(disk === undefined ? {} : { disk_gb: disk }),
      ...(key === undefined ? {} : { ssh_key_ids: [key] }),
    },
  ]);
  const { data = [] } = (await life.api.call('GET', '/v1/instances?limit=1', { key: owner.key })).json;
  for (const { id } of data) life.instances.set(String(id), owner);
}

/** The host reports any phase for the container of an instance, true or not, and goes on from there. */
async function report(life: Life, step: StepOf<'report'>): Promise<void> {
  const { world } = life.api;
  const instance = await findInstance(world.db.read, instanceAt(life, step.which)[0]);
  const host = life.hosts.find(({ machineId }) => machineId === instance?.machine_id);
  if (host === undefined || instance?.terminated_ms !== null || instance.workload_id === null) return;
  host.put(instance.workload_id, step.phase, step.failure);
  await host.tell(world);
}

/** Nobody can log in on a host that is away. It reports what it did meanwhile when it is back. */
async function link({ api: { world }, instances }: Life, host: Host | undefined, isUp: boolean): Promise<void> {
  if (host === undefined) return;
  host.isUp = isUp;
  await (isUp ? linkHost : loseHost)(world, host.machineId);
  for (const id of instances.keys()) {
    if ((await findInstance(world.db.read, id))?.machine_id !== host.machineId) continue;
    if (isUp) world.probeAnswers.delete(id);
    else world.probeAnswers.set(id, { ok: false, leg: 'link', detail: 'the host is away' });
  }
  await host.tell(world);
}

/** Its supplier lists or delists the machine. */
async function offer({ api: { world } }: Life, host: Host | undefined, isOn: boolean): Promise<void> {
  if (host === undefined) return;
  const { supply } = world.rooms;
  const act = isOn ? supply.relist : supply.delist;
  await world.db.tx('test.offer', async (tx) => void (await act(tx, host.orgId, host.machineId)));
}

async function contract(life: Life, step: StepOf<'contract'>): Promise<void> {
  const { rooms, clock } = life.api.world;
  const at = (days: number): string => new Date(clock.now() + days * DAY_MS).toISOString();
  const made = rooms.reservations.create({
    org_id: ownerAt(life, step.who).orgId,
    title: 'contract',
    starts_at: at(step.startsIn),
    ends_at: at(step.startsIn + step.days),
    renewal: step.renewal,
    commitment: [{ gpu_type: 'H100_SXM', gpu_count: step.gpus, region: 'eu-west' }],
  });
  await orRefused(made.then((view) => life.contracts.push(view.contract.id)));
}

function operate(life: Life, step: StepOf<'suspend' | 'resume' | 'cancel' | 'reassign'>): Promise<void> {
  return orRefused(life.api.world.rooms.reservations[step.do](pick(life.contracts, step.which) ?? ''));
}

function store(life: Life, { what, who }: StepOf<'store'>): Promise<void> {
  const login = { name: 'ci', registry: 'ghcr.io', username: 'me', password: 'secret' };
  const key = { name: 'laptop', public_key: newPublicKey(life.api) };
  return send(life, ownerAt(life, who), ['POST', `/v1/${what}`, what === 'ssh-keys' ? key : login]);
}

async function subscribe(life: Life, step: StepOf<'subscribe'>): Promise<void> {
  if (life.endpoints.size >= ENDPOINTS) return;
  const owner = ownerAt(life, step.who);
  const types = EVENT_TYPES.filter((_type, index) => step.which % 3 === 0 || index !== step.which % 4);
  life.subscriptions += 1;
  const url = `https://example.com/${life.subscriptions}`;
  const before = new Set((await publicEvents(life.api.world, owner.orgId)).map(({ id }) => id));
  const made = await life.api.call('POST', '/v1/webhook-endpoints', {
    key: owner.key,
    body: { url, event_types: types },
  });
  expect(made.status).toBe(201);
  life.receivers.trust(url, String(made.json['secret']));
  life.endpoints.set(String(made.json['id']), { owner, url, types, before });
}

interface OnEndpoint {
  life: Life;
  owner: ApiAccount;
  url: string;
  path: string;
  who: number;
}

function onEndpoint(act: (on: OnEndpoint) => Promise<void>) {
  return async (life: Life, { who, which }: { who: number; which: number }): Promise<void> => {
    const [id, endpoint] = pick([...life.endpoints], which) ?? [];
    if (endpoint !== undefined) await act({ life, ...endpoint, path: `/v1/webhook-endpoints/${id}`, who });
  };
}

async function runLoops(life: Life, rounds: number): Promise<void> {
  const { world } = life.api;
  const { signal } = new AbortController();
  for (let round = 0; round < rounds; round += 1) {
    await world.rooms.ownOutages.beat();
    await world.drive();
    await world.rooms.watch.run(signal);
    for (const id of await world.rooms.metering.tick(signal)) await world.rooms.instances.stopUnpaid(id);
    await carryAll(world);
    await world.clock.advance(ROUND_MS);
  }
}
