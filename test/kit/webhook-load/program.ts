// The sending side of a webhook load as a process of its own: makes events at a fixed rate and delivers them, until it is killed.
//
// argv: `service` or `plain`, and the plan as JSON. Started again on the same database it goes on where it was.
// `plain` is the peer of the benchmark: the same bodies at the same rate, posted at once and forgotten.
import { readFileSync } from 'node:fs';
import { Agent } from 'undici';
import { countRow } from '../../../control-plane/base/db/columns.ts';
import { sql } from '../../../control-plane/base/db/db.ts';
import { newInstance } from '../../../control-plane/rental/instances/create.ts';
import type { Launch } from '../../../control-plane/rental/instances/launch.ts';
import { insertInstance, setStatus } from '../../../control-plane/rental/instances/store.ts';
import { systemClock } from '../../../shared/clock.ts';
import { startLoop } from '../../../shared/loop.ts';
import { EVENT_TYPES, type LoadPlan, type LoadRooms, openLoadRooms, orgOf } from './rooms.ts';

const TICK_MS = 10;
const LAUNCH = { gpu_type: 'H100_SXM', gpu_count: 1, tier: 'on_demand', image: 'busybox' } as const;
const PREPARED: Launch = {
  image: LAUNCH.image,
  own_image: true,
  registry_credential_id: null,
  entrypoint: null,
  cmd: null,
  sealed_env: null,
  ports: [],
  min_vram_gb: 0,
  trusted_only: false,
  avoided_machine_ids: [],
};
const STATUS = ['allocating', 'running', 'terminated'] as const;

const [mode, planText = '{}'] = process.argv.slice(2);
const plan = JSON.parse(planText) as LoadPlan;
await (mode === 'plain' ? postPlainly() : serve());

async function serve(): Promise<void> {
  const rooms = await openLoadRooms(plan);
  const { db, clock, log, webhooks } = rooms;
  const loop = startLoop({ name: 'webhooks', periodMs: 500, run: () => webhooks.courier.run() }, { clock, log });
  const made = await db.read.one(countRow, sql`select count(*) as count from events`);
  await paced(made?.count ?? 0, (k) => db.tx('load.event', (tx) => makeEvent(tx, k, rooms)).then(() => loop.nudge()));
  process.stdout.write('all events are made\n');
}

async function makeEvent(
  tx: Parameters<typeof insertInstance>[0],
  k: number,
  { clock, events }: LoadRooms,
): Promise<void> {
  const number = Math.floor(k / EVENT_TYPES.length);
  const step = k % EVENT_TYPES.length;
  const id = `i-${number}`;
  const caller = { orgId: orgOf(number % plan.urls.length), principalId: 'apk_load' };
  const birth = { operationId: `op-${number}`, nowMs: clock.now() };
  if (step === 0) {
    await insertInstance(tx, {
      ...newInstance(id, caller, { request: LAUNCH, gpuType: LAUNCH.gpu_type, launch: PREPARED }, birth),
      due_ms: null,
    });
  } else {
    // Only the states with a public event: this load does not need those between them.
    const from = STATUS[step - 1] ?? 'allocating';
    await setStatus(tx, id, { from, to: STATUS[step] ?? 'terminated', nowMs: clock.now(), patch: {} });
  }
  await events.append(tx, {
    type: EVENT_TYPES[step] ?? 'instance.failed',
    subjectId: id,
    orgId: caller.orgId,
    data: {},
  });
}

async function postPlainly(): Promise<void> {
  const agent = new Agent({ connect: { ca: readFileSync(plan.caFile) }, headersTimeout: 10_000, connections: null });
  await paced(0, async (k) => {
    const number = Math.floor(k / EVENT_TYPES.length);
    const url = new URL(plan.urls[number % plan.urls.length] ?? '');
    const instance = {
      ...LAUNCH,
      id: `i-${number}`,
      status: STATUS[k % STATUS.length],
      version: k % STATUS.length,
      name: null,
    };
    const created_at = new Date().toISOString();
    const body = JSON.stringify({
      id: `evt_${k}`,
      type: EVENT_TYPES[k % EVENT_TYPES.length],
      created_at,
      data: { instance },
    });
    const headers = { 'content-type': 'application/json', 'svc-event-id': `evt_${k}` };
    // Those that hang or refuse are part of the load.
    agent
      .request({ origin: url.origin, path: url.pathname, method: 'POST', headers, body })
      .then((answer) => answer.body.dump())
      .catch(() => undefined);
  });
  process.stdout.write('all events are made\n');
}

/** Calls `make` for the numbers from `from` on, at the planned rate; those that are late come together. */
async function paced(from: number, make: (k: number) => Promise<void>): Promise<void> {
  const clock = systemClock();
  const startMs = clock.monotonicMs();
  const made: Promise<void>[] = [];
  while (from + made.length < plan.events) {
    const dueCount = Math.floor(((clock.monotonicMs() - startMs) * plan.perSecond) / 1000);
    while (made.length < dueCount && from + made.length < plan.events) made.push(make(from + made.length));
    // The clock's own timers keep no process alive.
    await new Promise((resolve) => setTimeout(resolve, TICK_MS));
  }
  await Promise.all(made);
}
