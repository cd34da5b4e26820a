// What operators watch and are woken for: asked of the rooms at each scrape. systemd/alerts.yaml is written on these names.
import { Counter, Gauge, type Registry } from 'prom-client';
import type { LoopStatus } from '../shared/loop.ts';
import { dollarsFromUcents } from '../shared/money.ts';
import type { Readiness } from './base/db/readiness.ts';
import { countHeld, flags } from './money/credits/store.ts';
import { proofState } from './money/ledger/proof-store.ts';
import { countMachinesByState } from './fleet/supply/store.ts';
import { countMachines } from './rental/edge/store.ts';
import { failsTogether } from './rental/edge/verdict.ts';
import { countByStatus, dueForMs } from './rental/instances/counts.ts';
import { countDeliveries } from './rental/webhooks/counts.ts';
import { countByStatus as countVideos } from './models/videos/store.ts';
import type { Core, Rooms } from './rooms.ts';

const DEAD_LETTERS_MS = 3_600_000;

interface GaugesDeps {
  core: Pick<Core, 'db' | 'clock'>;
  link: Pick<Rooms['link'], 'count'>;
  gateway: Pick<Rooms['gateway'], 'counts' | 'openRequests' | 'servers'>;
  videos: Pick<Rooms['videos'], 'counts'>;
  readiness: Readiness;
  heartbeat: Pick<Rooms['heartbeat'], 'clockSteps'>;
  blobs: Pick<Rooms['blobs'], 'disk'>;
  loops(): LoopStatus[];
}

interface Measure {
  name: string;
  help: string;
  labels?: readonly string[];
  read(): Promise<Sample[]> | Sample[];
}

interface Sample {
  labels?: Record<string, string>;
  value: number;
}

export function addGauges(registry: Registry, deps: GaugesDeps): void {
  const measures = [
    ...fleetMeasures(deps),
    ...rentalMeasures(deps),
    ...loopMeasures(deps),
    ...diskMeasures(deps),
    {
      name: 'svc_inference_open_requests',
      help: 'Requests to models that are being answered',
      read: () => one(deps.gateway.openRequests()),
    },
    {
      name: 'svc_inference_upstream_out',
      help: '1 while a model server is sent no requests because it fails, 0 for others that were asked',
      labels: ['upstream', 'upstream_model'],
      read: () =>
        deps.gateway.servers().map(({ upstream, model, isOut }) => ({
          labels: { upstream, upstream_model: model },
          value: isOut ? 1 : 0,
        })),
    },
    {
      name: 'svc_videos',
      help: 'Video jobs that are not over, by status',
      labels: ['status'],
      read: async () =>
        (await countVideos(deps.core.db.read)).map(({ status, count }) => ({ labels: { status }, value: count })),
    },
    ...creditMeasures(deps),
    {
      name: 'svc_database_writable',
      help: '1 while a row can be written and made durable, as /readyz says',
      read: async () => one((await deps.readiness.check()).length === 0 ? 1 : 0),
    },
    ...booksMeasures(deps),
  ];
  for (const measure of measures) add(Gauge, registry, measure);
  for (const measure of [...inferenceCounts(deps), clockMeasure(deps)]) add(Counter, registry, measure);
}

function clockMeasure({ heartbeat }: GaugesDeps): Measure {
  return {
    name: 'svc_clock_steps_total',
    help: 'How often the wall clock of this host was set under the running process',
    read: () => one(heartbeat.clockSteps()),
  };
}

/** 0 before the first proof. */
function booksMeasures({ core: { db } }: GaugesDeps): Measure[] {
  return [
    {
      name: 'svc_ledger_faults',
      help: 'Broken invariants of the books that the last proof has found; the log names each',
      read: async () => one((await proofState(db.read)).faults),
    },
    {
      name: 'svc_ledger_verified_timestamp_seconds',
      help: 'When the books were last proven to the end: what was new in them, and the whole',
      labels: ['extent'],
      read: async () => {
        const { new_proven_ms: newMs, whole_proven_ms: wholeMs } = await proofState(db.read);
        return [
          { labels: { extent: 'new' }, value: (newMs ?? 0) / 1000 },
          { labels: { extent: 'whole' }, value: (wholeMs ?? 0) / 1000 },
        ];
      },
    },
  ];
}

function creditMeasures({ core: { db } }: GaugesDeps): Measure[] {
  return [
    {
      name: 'svc_credits_held',
      help: 'Credits and payments above a bound that wait for the operator',
      labels: ['kind'],
      read: async () => (await countHeld(db.read)).map(({ kind, count }) => ({ labels: { kind }, value: count })),
    },
    {
      name: 'svc_credits_held_dollars',
      help: 'What these come to',
      labels: ['kind'],
      read: async () =>
        (await countHeld(db.read)).map(({ kind, total_ucents: ucents }) => ({
          labels: { kind },
          value: dollarsFromUcents(ucents),
        })),
    },
    {
      name: 'svc_tenants_flagged',
      help: 'Tenants that fail where others are served well: credits for their outages wait',
      read: async () => one((await flags(db.read)).length),
    },
  ];
}

/** 0 before the first blob. */
function diskMeasures({ blobs }: GaugesDeps): Measure[] {
  const measure = (name: string, help: string, of: 'bytes' | 'freeBytes'): Measure => ({
    name,
    help,
    read: async () => one((await blobs.disk())?.[of] ?? 0),
  });
  return [
    measure('svc_blobs_disk_bytes', 'Size of the disk under `blobs_dir`', 'bytes'),
    measure('svc_blobs_disk_free_bytes', 'What is free of it', 'freeBytes'),
  ];
}

function fleetMeasures({ core: { db }, link }: GaugesDeps): Measure[] {
  return [
    {
      name: 'svc_machines',
      help: 'Machines by status, and whether their agent is connected',
      labels: ['status', 'online'],
      read: async () =>
        (await countMachinesByState(db.read)).map(({ status, online, count }) => ({
          labels: { status, online: String(online) },
          value: count,
        })),
    },
    {
      name: 'svc_machines_with_unknown_workloads',
      help: 'Machines that run containers which the database does not know, or are connected and have not said',
      read: async () => one((await countMachinesByState(db.read)).reduce((sum, row) => sum + row.with_unknown, 0)),
    },
    {
      name: 'svc_machines_failed',
      help: 'Machines that the operator has listed and whose verification failed: they are not on offer',
      read: async () => {
        const listed = (await countMachinesByState(db.read)).filter(({ status }) => status === 'listed');
        return one(listed.reduce((sum, row) => sum + row.failed, 0));
      },
    },
    { name: 'svc_agent_links', help: 'Links of agents that are up', read: () => one(link.count()) },
    {
      name: 'svc_machines_failing_probes',
      help: 'Machines with a rental that cannot be reached',
      read: async () => one((await countMachines(db.read)).failing),
    },
    {
      name: 'svc_verdicts_held',
      help: '1 while so many machines fail together that verdicts wait',
      read: async () => {
        const { machines, failing } = await countMachines(db.read);
        return one(failsTogether(machines, failing) ? 1 : 0);
      },
    },
  ];
}

function rentalMeasures({ core: { db, clock } }: GaugesDeps): Measure[] {
  const deliveries = (): ReturnType<typeof countDeliveries> =>
    countDeliveries(db.read, clock.now(), clock.now() - DEAD_LETTERS_MS);
  return [
    {
      name: 'svc_instances',
      help: 'Instances that are not terminated, by status',
      labels: ['status'],
      read: async () =>
        (await countByStatus(db.read)).map(({ status, count }) => ({ labels: { status }, value: count })),
    },
    {
      name: 'svc_instances_due_seconds',
      help: 'How long the instance that waits longest for the engine has been due',
      read: async () => one((await dueForMs(db.read, clock.now())) / 1000),
    },
    {
      name: 'svc_webhook_deliveries_waiting',
      help: 'Webhook deliveries to be tried, now or later',
      read: async () => one((await deliveries()).waiting),
    },
    {
      name: 'svc_webhook_deliveries_due_seconds',
      help: 'How long the webhook delivery that waits longest has been due',
      read: async () => one((await deliveries()).dueForMs / 1000),
    },
    {
      name: 'svc_webhook_dead_letters',
      help: 'Webhook deliveries that were given up within the last hour',
      read: async () => one((await deliveries()).dead),
    },
  ];
}

function loopMeasures({ loops }: GaugesDeps): Measure[] {
  const ofEach = (valueOf: (loop: LoopStatus) => number): Sample[] =>
    loops().map((loop) => ({ labels: { loop: loop.name }, value: valueOf(loop) / 1000 }));
  return [
    {
      name: 'svc_loop_last_success_timestamp_seconds',
      help: 'When a loop last ended well; 0: not yet',
      labels: ['loop'],
      read: () => ofEach((loop) => loop.last_success_ms ?? 0),
    },
    {
      name: 'svc_loop_period_seconds',
      help: 'How often a loop runs',
      labels: ['loop'],
      read: () => ofEach((loop) => loop.period_ms),
    },
  ];
}

function inferenceCounts({ gateway: { counts }, videos }: GaugesDeps): Measure[] {
  return [
    {
      name: 'svc_inference_requests_total',
      help: 'Requests to models by how they ended',
      labels: ['model', 'ending'],
      read: () => counts.endings().map(({ model, ending, count }) => ({ labels: { model, ending }, value: count })),
    },
    {
      name: 'svc_inference_upstream_failures_total',
      help: 'Requests that a model server did not take or answer',
      labels: ['upstream'],
      read: () =>
        [...counts.failures(), ...videos.counts.failures()].map(({ upstream, count }) => ({
          labels: { upstream },
          value: count,
        })),
    },
    {
      name: 'svc_inference_beyond_context_total',
      help: 'Answers of model servers that used more context than their model is sold with',
      labels: ['model'],
      read: () => counts.beyondContexts().map(({ model, count }) => ({ labels: { model }, value: count })),
    },
    {
      name: 'svc_videos_total',
      help: 'Video jobs by how they ended',
      labels: ['model', 'status'],
      read: () =>
        videos.counts.endings().map(({ model, status, count }) => ({ labels: { model, status }, value: count })),
    },
  ];
}

function one(value: number): Sample[] {
  return [{ value }];
}

/** Samples that are not read any more disappear. */
function add(
  Metric: typeof Gauge | typeof Counter,
  registry: Registry,
  { name, help, labels = [], read }: Measure,
): void {
  const metric = new Metric({
    name,
    help,
    labelNames: labels,
    registers: [registry],
    collect: async () => {
      const samples = await read();
      metric.reset();
      for (const sample of samples) metric.inc(sample.labels ?? {}, sample.value);
    },
  });
}
