// The delay of webhooks to working endpoints while others hang and refuse: the service against plain posts of the same bodies.
import { openWebhookLoad, type WebhookLoad } from '../kit/webhook-load/load.ts';
import { percentile, report } from './measure.ts';

const SIZE = { endpoints: 100, hanging: 10, refusing: 10, events: 10_000, perSecond: 200 };
const PATIENCE_MS = 180_000;
/** The limit for the slowest twentieth. */
const P95_MS_MAX = 2_000;

export async function benchWebhooks(): Promise<void> {
  const load = await openWebhookLoad(SIZE);
  try {
    const plain = await delaysMs(load, 'plain');
    const service = await delaysMs(load, 'service');
    for (const [name, part] of [
      ['p50', 0.5],
      ['p95', 0.95],
    ] as const) {
      report({
        what: `webhook delay ${name}, ${SIZE.perSecond}/s to ${SIZE.endpoints} endpoints, ${SIZE.hanging} hang, ${SIZE.refusing} refuse`,
        ours: percentile(service, part),
        peer: percentile(plain, part),
        peerName: 'plain undici posts',
        unit: 'ms',
      });
    }
    report({
      what: 'webhook delay p95',
      ours: percentile(service, 0.95),
      peer: P95_MS_MAX,
      peerName: 'the allowed',
      unit: 'ms',
      target: { rule: 'at most', ratio: 1 },
    });
  } finally {
    await load.close();
  }
}

/** The delay of every delivery to an endpoint that works. */
async function delaysMs(load: WebhookLoad, mode: 'service' | 'plain'): Promise<number[]> {
  load.reset();
  const program = load.start(mode);
  await load.received(load.expected, PATIENCE_MS);
  await program.stop('SIGKILL');
  return load.healthy.flatMap((place) => load.arrivals[place] ?? []).map(({ delayMs }) => delayMs);
}
