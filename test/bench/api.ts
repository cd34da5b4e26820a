// Requests a second of the API, process to process over sockets: the service against bare fastify routes that do the same SQL on a copy of
// its database.
import { openStage, type Stage } from './api/stage.ts';
import { median, report, shuffled, type Target } from './measure.ts';
import { processorUs } from './processes.ts';
import { installMissing } from '../kit/setup.ts';
import type { Answer } from './side.ts';

/** Few, because the bench must end before the control plane takes machines without an agent off the market, a minute after its start. */
const ROUNDS = 3;
const READS = { connections: 16, count: 2_000 };
/** Launches that arrive together share a commit. */
const LAUNCHES = { connections: 64, count: 1_000 };
const LAUNCHES_PER_SECOND_MIN = 1_200;
const READ_TARGET: Target = { rule: 'at least', ratio: 0.8 };

interface Work {
  method: 'GET' | 'POST';
  path: string;
  status: number;
  connections: number;
  count: number;
  target?: Target;
}

/** Launches come before the list of instances, so that it has some. */
const WORKS: readonly Work[] = [
  { method: 'GET', path: '/v1/pricing', status: 200, ...READS, target: READ_TARGET },
  { method: 'POST', path: '/v1/instances', status: 202, ...LAUNCHES },
  { method: 'GET', path: '/v1/instances', status: 200, ...READS, target: READ_TARGET },
];

export async function benchApi(): Promise<void> {
  const missing = installMissing(['docker-registry', 'busybox', 'openssl'], console.log);
  if (missing.length > 0) return console.log(`api: not measured, ${missing.join(', ')} is missing here`);
  const stage = await openStage();
  try {
    for (const work of WORKS) await compare(stage, work);
  } finally {
    await stage.close();
  }
}

async function compare(stage: Stage, work: Work): Promise<void> {
  const figures: Record<'service' | 'peer', Answer[]> = { service: [], peer: [] };
  for (const side of ['service', 'peer'] as const) await load(stage, side, { ...work, count: work.count / 2 });
  for (let round = 0; round < ROUNDS; round += 1) {
    for (const side of shuffled(['service', 'peer'] as const)) figures[side].push(await load(stage, side, work));
  }
  const of = (side: 'service' | 'peer', name: string): number =>
    median(figures[side].map((answer) => answer[name] ?? Number.NaN));
  const what = `${work.method} ${work.path}, ${work.connections} connections`;
  const peerName = 'bare fastify';
  const both = (name: string): { ours: number; peer: number } => ({
    ours: of('service', name),
    peer: of('peer', name),
  });
  const target = work.target === undefined ? {} : { target: work.target };
  report({ what, ...both('perSecond'), peerName, unit: '/s', ...target });
  report({ what: '  p50', ...both('p50Ms'), peerName, unit: 'ms' });
  report({ what: '  p99', ...both('p99Ms'), peerName, unit: 'ms' });
  // Other programs on the machine change the rates, and hardly this.
  report({ what: '  processor time of a request', ...both('processorUs'), peerName, unit: 'us' });
  if (work.method === 'GET') return;
  const ours = of('service', 'perSecond');
  const required = { peer: LAUNCHES_PER_SECOND_MIN, peerName: 'the required', unit: '/s' };
  report({ what: 'launches accepted durably', ours, ...required, target: { rule: 'at least', ratio: 1 } });
}

async function load(stage: Stage, side: 'service' | 'peer', { method, path, ...amounts }: Work): Promise<Answer> {
  const { client, keys: key, image, pids } = stage;
  const launch = { gpu_type: 'H100_SXM', gpu_count: 1, tier: 'on_demand', image };
  const { connections, count, status } = amounts;
  const body = method === 'POST' ? JSON.stringify(launch) : '';
  const beforeUs = processorUs(pids[side]);
  const origin = stage[side] ?? '';
  const answer = await client.ask({ kind: method, origin, path, key, body, connections, count, status });
  return { ...answer, processorUs: (processorUs(pids[side]) - beforeUs) / count };
}
