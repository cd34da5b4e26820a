// Launches a second that a control plane on PostgreSQL accepts over HTTP, durably: with the server near, and 2 ms away.
import { openStage } from '../api/stage.ts';
import { createDatabase, withDatabase } from '../database.ts';
import { median, report } from '../measure.ts';
import { processorUs } from '../processes.ts';
import type { Answer } from '../side.ts';

const ROUNDS = 3;
/** Few, because the machines of the bench have no agents, and leave the market a minute after the start. */
const LAUNCHES = { connections: 64, count: 600 };
/** A service is at work for weeks, and its first launches run code that is not compiled yet: they cost up to twice as much. */
const WARM_UP = 3_000;
const PER_SECOND_MIN = 500;

/** `far` is the server of `near` behind the proxy. */
export async function benchLaunches(urls: { near: string; far: string }): Promise<void> {
  const onceNearUrl = await createDatabase(urls.near, 'launches_near');
  const near = await measure(onceNearUrl, onceNearUrl);
  const nearUrl = await createDatabase(urls.near, 'launches_far');
  const far = await measure(withDatabase(urls.far, 'launches_far'), nearUrl);
  const what = 'launches accepted, PostgreSQL 2 ms away, 64 callers, 100 organisations';
  report({ what, ours: far.perSecond, peer: near.perSecond, peerName: 'near', unit: '/s' });
  report({ what: '  p50', ours: far.p50Ms, peer: near.p50Ms, peerName: 'near', unit: 'ms' });
  report({
    what: '  processor time of a launch in the control plane',
    ours: far.processorUs,
    peer: near.processorUs,
    peerName: 'near',
    unit: 'us',
  });
  const required = { peer: PER_SECOND_MIN, peerName: 'the required', unit: '/s' };
  report({ what: `  ${what}`, ours: far.perSecond, ...required, target: { rule: 'at least', ratio: 1 } });
}

type Figures = Record<'perSecond' | 'p50Ms' | 'processorUs', number>;

async function measure(url: string, nearUrl: string): Promise<Figures> {
  const stage = await openStage({ postgres: { url, nearUrl } });
  try {
    const { client, service: origin, keys: key, image, pids } = stage;
    const body = JSON.stringify({ gpu_type: 'H100_SXM', gpu_count: 1, tier: 'on_demand', image });
    const order = { kind: 'POST', origin, path: '/v1/instances', key, body, status: 202 };
    const answers: Answer[] = [];
    await client.ask({ ...order, ...LAUNCHES, count: WARM_UP });
    for (let round = 0; round < ROUNDS; round += 1) {
      const beforeUs = processorUs(pids.service);
      const answer = await client.ask({ ...order, ...LAUNCHES });
      answers.push({ ...answer, processorUs: (processorUs(pids.service) - beforeUs) / LAUNCHES.count });
    }
    const of = (name: string): number => median(answers.map((answer) => answer[name] ?? Number.NaN));
    return { perSecond: of('perSecond'), p50Ms: of('p50Ms'), processorUs: of('processorUs') };
  } finally {
    await stage.close();
  }
}
