// A launch that is cancelled right before its pull begins: nothing is downloaded that nobody needs.
import { expect, test } from 'vitest';
import type { Engine } from '../../../agent/runtime/engine.ts';
import { openPulls, type Wanted } from '../../../agent/runtime/pulls.ts';
import { createLog } from '../../../shared/log.ts';
import type { PullAnswer } from '../../../shared/protocol/link.ts';
import { virtualClock } from '../../kit/virtual-clock.ts';

const LOGIN: PullAnswer = { kind: 'bearer', token: 't' };

test.each([
  ['the control plane is asked for a login', true],
  ['the engine is asked for the image', false],
])('nothing is pulled for a workload that ended while %s', async (_what, isPrivate) => {
  const clock = virtualClock();
  const log = createLog('test', 'silent');
  const login = Promise.withResolvers<PullAnswer>();
  const absence = Promise.withResolvers<undefined>();
  const calls: string[] = [];
  const engine = {
    version: async () => '1',
    inspectImage: () => (isPrivate ? Promise.resolve(undefined) : absence.promise),
    pull: async () => void calls.push('pull'),
  } as unknown as Engine;
  const deps = { clock, log, pullLogin: () => login.promise, hasRoom: async () => true };
  const pulls = openPulls(engine, () => undefined, deps);
  const wanted: Wanted = { workload_id: 'w', image: 'app', pull_login: isPrivate };
  pulls.begin(wanted);
  await clock.advance(1_000);
  pulls.keepOnly([]);
  login.resolve(LOGIN);
  absence.resolve(undefined);
  await clock.advance(1_000);
  expect(calls).toEqual([]);
});
