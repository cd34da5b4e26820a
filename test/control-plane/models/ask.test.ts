// The time limit of a request that goes from one server to the next.
import { expect, test } from 'vitest';
import type { Exchange } from '../../../control-plane/base/outbound/exchange.ts';
import type { Callable } from '../../../control-plane/models/catalog/catalog.ts';
import type { Upstream } from '../../../control-plane/models/catalog/models.ts';
import { ask, type AskDeps } from '../../../control-plane/models/gateway/ask.ts';
import { openAttempts } from '../../../control-plane/models/gateway/attempts.ts';
import { createLog } from '../../../shared/log.ts';
import { virtualClock } from '../../kit/virtual-clock.ts';

const ANSWER_MS = 100_000;
const nothing = (): void => undefined;
const SLOT = { answered: nothing, refused: nothing, failed: nothing, busy: nothing, over: nothing };
const server = (name: string): Upstream => ({ base_url: `http://${name}/v1`, connect_ms: 1_000 }) as Upstream;

test('all tries after a wait for a server share one time limit, which begins with the end of the wait', async () => {
  const clock = virtualClock();
  // There is no server at first, and two after the wait.
  const found = [undefined, server('one'), server('two')];
  const limitsMs: unknown[] = [];
  const deps = {
    clock,
    log: createLog('test', 'silent'),
    upstreams: { next: () => found.shift(), begin: () => SLOT },
    replicas: { serversOf: () => [], wait: () => clock.advance(30_000) },
    exchanges: {
      open: async ({ totalMs }: { totalMs: number }) => {
        limitsMs.push(totalMs);
        await clock.advance(40_000);
        return { status: limitsMs.length === 1 ? 429 : 200, headers: {}, end: nothing } as Exchange;
      },
    },
  } as unknown as AskDeps;
  const callable = { model: {}, upstreams: [], deployment: {} } as unknown as Callable;
  await ask(
    {
      callable,
      path: '/chat/completions',
      body: () => ({}),
      attempts: openAttempts(clock),
      orgId: 'org_1',
      startedMs: clock.monotonicMs(),
      answerMs: () => ANSWER_MS,
      idleMs: () => ANSWER_MS,
      signal: new AbortController().signal,
    },
    deps,
  );
  expect(limitsMs).toEqual([ANSWER_MS, ANSWER_MS - 40_000]);
});
