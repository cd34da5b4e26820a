// What this room brings to the house.
import type { LoopOptions } from '../../../shared/loop.ts';
import { type Measure, one } from '../../base/http/metrics.ts';
import type { Absence } from './absence.ts';
import type { Link } from './link.ts';

const ABSENCE_PERIOD_MS = 15_000;
/** Agents come back after a restart spread over this time. */
const RECONNECT_AFTER_MS = 1_000;

export function linkBrings({ link, absence }: { link: Link; absence: Absence }) {
  const loop: LoopOptions = { name: 'absence', periodMs: ABSENCE_PERIOD_MS, run: () => absence.run() };
  const links: Measure = {
    name: 'svc_agent_links',
    help: 'Links of agents that are up',
    kind: 'gauge',
    read: () => one(link.count()),
  };
  return { loops: [loop], measures: [links], leave: () => link.drain(RECONNECT_AFTER_MS) };
}
