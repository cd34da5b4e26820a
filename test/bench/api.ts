// Requests a second of the API, process to process over sockets: the service against bare fastify routes that send the same from a copy of
// its database.
import { openStage, type Stage } from './api/stage.ts';
import { report, shuffled, type Target } from './measure.ts';
import { processorUs } from './processes.ts';
import { installMissing } from '../kit/setup.ts';
import type { Answer } from './side.ts';

/**
 * Many short rounds, because other programs on the machine change the speed from second to second, and few requests, because the launches
 * must end before the control plane takes machines without an agent off the market, a minute after its start. The first few thousand requests of
 * a process cost up to twice as much, until V8 has compiled what runs.
 */
const READS = { connections: 16, warmUp: 6_000, rounds: 7, count: 1_000 };
/** Nobody shares the answer to the only customer. */
const READS_ALONE = { connections: 1, warmUp: 200, rounds: 5, count: 400 };
/** Launches that arrive together share a commit. */
const LAUNCHES = { connections: 64, warmUp: 500, rounds: 3, count: 1_000 };
const LAUNCHES_PER_SECOND_MIN = 1_200;
const READ_TARGET: Target = { rule: 'at least', ratio: 0.8 };
const SIDES = ['service', 'peer'] as const;
type SideName = (typeof SIDES)[number];
type Round = Record<SideName, Answer>;

interface Pair {
  ours: number;
  peer: number;
}

interface Work {
  method: 'GET' | 'POST';
  path: string;
  status: number;
  connections: number;
  /** Requests before the first round. */
  warmUp: number;
  rounds: number;
  /** Requests of a round. */
  count: number;
  target?: Target;
}

/** Launches come before the list of instances, so that it has some. */
const WORKS: readonly Work[] = [
  { method: 'GET', path: '/v1/pricing', status: 200, ...READS, target: READ_TARGET },
  { method: 'GET', path: '/v1/pricing', status: 200, ...READS_ALONE },
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
  for (const side of SIDES) await load(stage, side, { ...work, count: work.warmUp });
  const rounds: Round[] = [];
  for (let round = 0; round < work.rounds; round += 1) {
    const figures: Partial<Round> = {};
    for (const side of shuffled(SIDES)) figures[side] = await load(stage, side, work);
    rounds.push(figures as Round);
  }
  const what = `${work.method} ${work.path}, ${work.connections} connections`;
  const peerName = 'bare fastify';
  const target = work.target === undefined ? {} : { target: work.target };
  report({ what, ...middle(rounds, 'perSecond'), peerName, unit: '/s', ...target });
  report({ what: '  p50', ...middle(rounds, 'p50Ms'), peerName, unit: 'ms' });
  report({ what: '  p99', ...middle(rounds, 'p99Ms'), peerName, unit: 'ms' });
  // Both sides are busy with one thread, so on an idle machine this is the inverse ratio. Other programs change it less than the rates.
  report({ what: '  processor time of a request', ...middle(rounds, 'processorUs'), peerName, unit: 'us' });
  if (work.method === 'GET') return assertAlike(middle(rounds, 'bytes'), what);
  await assertOnTheMarket(stage);
  const { ours } = middle(rounds, 'perSecond');
  const required = { peer: LAUNCHES_PER_SECOND_MIN, peerName: 'the required', unit: '/s' };
  report({ what: 'launches accepted durably', ours, ...required, target: { rule: 'at least', ratio: 1 } });
}

/** The figures of the round with the median ratio. Both sides of a round ran at the same time of the day, on an equally busy machine. */
function middle(rounds: readonly Round[], name: string): Pair {
  const pairs = rounds.map(({ service, peer }) => ({
    ours: service[name] ?? Number.NaN,
    peer: peer[name] ?? Number.NaN,
  }));
  const sorted = pairs.toSorted((a, b) => a.ours / a.peer - b.ours / b.peer);
  return sorted[Math.floor(sorted.length / 2)] ?? { ours: Number.NaN, peer: Number.NaN };
}

/** @throws Error if the two sides send different answers: their rates could not be compared */
function assertAlike({ ours, peer }: Pair, what: string): void {
  if (Math.abs(ours / peer - 1) < 0.02) return;
  throw new Error(`${what}: the service sends ${ours} bytes and the peer ${peer}, so they do different work`);
}

/** @throws Error if the control plane has taken the machines off the market */
async function assertOnTheMarket({ service }: Stage): Promise<void> {
  const answer = await fetch(`${service}/v1/pricing`);
  const { data } = (await answer.json()) as { data: unknown[] };
  if (data.length === 0) throw new Error('the launches took more than a minute, and the machines are off the market');
}

async function load(stage: Stage, side: SideName, { method, path, ...amounts }: Work): Promise<Answer> {
  const { client, keys: key, image, pids } = stage;
  const launch = { gpu_type: 'H100_SXM', gpu_count: 1, tier: 'on_demand', image };
  const { connections, count, status } = amounts;
  const body = method === 'POST' ? JSON.stringify(launch) : '';
  const beforeUs = processorUs(pids[side]);
  const origin = stage[side] ?? '';
  const answer = await client.ask({ kind: method, origin, path, key, body, connections, count, status });
  return { ...answer, processorUs: (processorUs(pids[side]) - beforeUs) / count };
}
