// What this room adds to the house: a loop and a metric.
import type { LoopOptions } from '../../../shared/loop.ts';
import { type Measure, one } from '../../base/http/metrics.ts';
import type { CloneTokens } from './clone-tokens.ts';
import type { Presence } from './presence.ts';
import type { Link } from './link.ts';

const ABSENCE_PERIOD_MS = 15_000;
/** After a restart, agents reconnect at random times within this span. */
const RECONNECT_AFTER_MS = 1_000;

interface Deps {
  link: Link;
  presence: Presence;
  cloneTokens: Pick<CloneTokens, 'store'>;
}

export function linkBrings({ link, presence, cloneTokens }: Deps) {
  const loop: LoopOptions = { name: 'presence', periodMs: ABSENCE_PERIOD_MS, run: () => presence.run() };
  const links: Measure = {
    name: 'svc_agent_links',
    help: 'Agent links that are connected',
    kind: 'gauge',
    read: () => one(link.count()),
  };
  const leave = async (): Promise<void> => {
    await link.drain(RECONNECT_AFTER_MS);
    await cloneTokens.store();
  };
  return { loops: [loop], measures: [links], leave };
}
