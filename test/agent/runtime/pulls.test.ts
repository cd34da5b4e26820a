// Pulls with an engine that is played here: once for a public image, once for each workload of a private one, and with which login.
import { beforeEach, describe, expect, test } from 'vitest';
import type { Engine } from '../../../agent/runtime/engine.ts';
import { openPulls, type Pulls } from '../../../agent/runtime/pulls.ts';
import { createLog } from '../../../shared/log.ts';
import type { PullAnswer } from '../../../shared/protocol/link.ts';
import { virtualClock, type VirtualClock } from '../../kit/virtual-clock.ts';
import { desiredWorkload } from '../desired-workload.ts';

const IMAGE = `ghcr.io/org/app@sha256:${'a'.repeat(64)}`;
const open = (id: string) => desiredWorkload(id, IMAGE);
const guarded = (id: string) => desiredWorkload(id, IMAGE, { pull_login: true });

const FACTS = { digest: '', entrypoint: [], cmd: [], env: [], user: '', working_dir: '', stop_signal: '' };

let clock: VirtualClock;
let pulls: Pulls;
let logins: (PullAnswer | null)[];
let isHere: boolean;
let refusal: PullAnswer | undefined;
let absences: number;
/** The engine does not answer until then, by the clock. */
let awayUntilMs: number;
let asked: string[];
let failures: string[];

beforeEach(() => {
  clock = virtualClock();
  logins = [];
  asked = [];
  failures = [];
  isHere = false;
  refusal = undefined;
  absences = 0;
  awayUntilMs = 0;
  const assertUp = (): void => {
    if (clock.now() < awayUntilMs) throw new Error('connect ECONNREFUSED');
  };
  const engine: Pick<Engine, 'version' | 'pull' | 'inspectImage'> = {
    version: async () => {
      assertUp();
      return '1';
    },
    inspectImage: async () => {
      assertUp();
      return isHere ? FACTS : undefined;
    },
    pull: async (_image, login) => {
      assertUp();
      logins.push(login);
      const failure = failures.shift();
      if (failure !== undefined) throw new Error(failure);
    },
  };
  const pullLogin = async (workloadId: string): Promise<PullAnswer> => {
    asked.push(workloadId);
    if (absences > 0) {
      absences -= 1;
      throw new Error('nobody answers');
    }
    return refusal ?? { kind: 'bearer', token: `token ${asked.length}` };
  };
  pulls = openPulls(engine as Engine, () => undefined, { clock, log: createLog('test', 'silent'), pullLogin });
});

const pull = async (...wanted: ReturnType<typeof open>[]): Promise<void> => {
  for (const one of wanted) pulls.begin(one);
  await clock.advance(60_000);
};

test('a public image is pulled once for all, without a login', async () => {
  await pull(open('wl_a'), open('wl_b'));
  await pull(open('wl_c'));
  expect(logins).toEqual([null]);
  expect(pulls.status(open('wl_d'))).toEqual({ state: 'ready' });
});

test('an engine that is restarted in the middle costs no try, however long it takes', async () => {
  failures = ['no more', 'no more'];
  pulls.begin(open('wl_a'));
  await clock.advance(3_000);
  awayUntilMs = clock.now() + 600_000;
  await clock.advance(599_000);
  expect(pulls.status(open('wl_a'))).toEqual({ state: 'pulling', progress: null });
  await clock.advance(60_000);
  expect(pulls.status(open('wl_a'))).toEqual({ state: 'ready' });
});

test('a pull that fails with an engine that answers is given up after three tries', async () => {
  failures = Array.from({ length: 4 }, () => 'no more');
  await pull(open('wl_a'));
  expect(logins).toHaveLength(3);
  expect(pulls.status(open('wl_a'))).toEqual({ state: 'failed', detail: 'no more' });
});

describe('a private image', () => {
  test('is pulled for each workload by itself, with a fresh login each time', async () => {
    await pull(guarded('wl_a'), guarded('wl_b'));
    expect(asked).toEqual(['wl_a', 'wl_b']);
    expect(logins).toEqual([
      { kind: 'bearer', token: 'token 1' },
      { kind: 'bearer', token: 'token 2' },
    ]);
    expect(pulls.status(guarded('wl_c'))).toEqual({ state: 'none' });
  });

  test('that another has pulled to this machine is had only once the control plane says so', async () => {
    isHere = true;
    await pull(guarded('wl_a'));
    expect(asked).toEqual(['wl_a']);
    expect(pulls.status(guarded('wl_a'))).toEqual({ state: 'ready' });
    refusal = { kind: 'refused', detail: 'its login is wrong' };
    await pull(guarded('wl_b'));
    expect(asked).toEqual(['wl_a', 'wl_b']);
    expect(pulls.status(guarded('wl_b'))).toEqual({ state: 'failed', detail: 'its login is wrong' });
    expect(logins).toEqual([]);
  });

  test('whose token has run out half way is tried again with a new one', async () => {
    failures = ['unauthorized: token expired'];
    await pull(guarded('wl_a'));
    expect(asked).toHaveLength(2);
    expect(pulls.status(guarded('wl_a'))).toEqual({ state: 'ready' });
  });

  test('that takes longer than its tokens last fails, saying so', async () => {
    failures = Array.from({ length: 3 }, () => 'unauthorized: token expired');
    await pull(guarded('wl_a'));
    expect(pulls.status(guarded('wl_a'))).toEqual({
      state: 'failed',
      detail: "the registry's token did not last until the image was whole: unauthorized: token expired",
    });
  });

  test('waits for a control plane that is away, for as long as the workload is wanted', async () => {
    absences = 20;
    await pull(guarded('wl_a'));
    expect(pulls.status(guarded('wl_a'))).toEqual({ state: 'ready' });
    absences = Infinity;
    await pull(guarded('wl_b'));
    expect(pulls.status(guarded('wl_b'))).toEqual({ state: 'pulling', progress: null });
    pulls.forgetWorkload('wl_b');
    const before = asked.length;
    await pull();
    expect(asked.length - before).toBeLessThanOrEqual(1);
    expect(pulls.status(guarded('wl_b'))).toEqual({ state: 'none' });
  });

  test('that is gone is not tried again', async () => {
    failures = ['manifest unknown'];
    await pull(guarded('wl_a'));
    expect(pulls.status(guarded('wl_a'))).toEqual({ state: 'failed', detail: 'manifest unknown' });
    pulls.forgetWorkload('wl_a');
    expect(pulls.status(guarded('wl_a'))).toEqual({ state: 'none' });
  });
});
