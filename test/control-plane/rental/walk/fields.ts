// Which fields an instance has, as its customer is shown it.
import type { Instance } from '../../../../shared/api/instance.ts';
import type { InstanceState } from '../../../../shared/states.ts';

const UP = new Set<InstanceState>(['running', 'unreachable']);
const OVER = new Set<InstanceState>(['stopped', 'terminated']);
/** No main process ends here, so there is nothing else to explain. */
const EXPLAINED = new Set<InstanceState>(['error', 'stopped', 'unreachable']);
const UNEXPLAINED = new Set<InstanceState>(['allocating', 'starting', 'running']);

/** A sentence for each field that the instance should not have by its status and its past, or lacks (specification 2.2). */
export function brokenFields(shown: Instance): string[] {
  const { status } = shown;
  const hasRun = shown.ready_at !== null;
  const isLimitReached = shown.status_reason?.startsWith('The runtime limit') === true;
  const rules: [string, boolean, boolean][] = [
    ['connection', shown.connection !== null, UP.has(status)],
    ['connection.terminal_url', shown.connection?.terminal_url !== undefined, status === 'running'],
    ['terminated_at', shown.terminated_at !== null, OVER.has(status)],
    ['unreachable_since', shown.unreachable_since !== undefined, status === 'unreachable'],
    ['last_reachable_at', shown.last_reachable_at !== undefined, hasRun],
    [
      'auto_terminate_at',
      shown.auto_terminate_at !== undefined,
      hasRun && shown.auto_terminate_hours !== undefined && !isLimitReached,
    ],
  ];
  if (UP.has(status) || UNEXPLAINED.has(status)) rules.push(['ready_at', hasRun, UP.has(status)]);
  if (EXPLAINED.has(status) || UNEXPLAINED.has(status)) {
    rules.push(['status_reason', shown.status_reason !== undefined, EXPLAINED.has(status)]);
  }
  const wrong = rules.filter(([, isThere, shouldBe]) => isThere !== shouldBe);
  return wrong.map(([field, isThere]) => `${status} ${isThere ? 'has' : 'lacks'} ${field}`);
}
