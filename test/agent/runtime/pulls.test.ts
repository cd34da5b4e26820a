// Pulls: once for a public image, once per workload for a private one, and with which login. The test plays the engine.
import { beforeEach, describe, expect, test } from 'vitest';
import type { Engine, PullNews } from '../../../agent/runtime/engine.ts';
import { openPulls, type Pulls } from '../../../agent/runtime/pulls.ts';
import { createLog } from '../../../shared/log.ts';
import { PULL_BYTES_PER_SECOND_MIN, PULL_MS_MAX } from '../../../shared/limits.ts';
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
/** What a registry sends, and how fast; undefined: all at once. */
let registry: ((onNews: (news: PullNews) => void, signal: AbortSignal) => Promise<void>) | undefined;
/** Bytes for images on the disk. */
let roomBytes: number;

beforeEach(() => {
  clock = virtualClock();
  logins = [];
  asked = [];
  failures = [];
  registry = undefined;
  roomBytes = Infinity;
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
    pull: async (_image, login, onNews, signal) => {
      assertUp();
      logins.push(login);
      await registry?.(onNews, signal);
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
  const hasRoom = async (bytes: number): Promise<boolean> => bytes <= roomBytes;
  const deps = { clock, log: createLog('test', 'silent'), pullLogin, hasRoom };
  pulls = openPulls(engine as Engine, () => undefined, deps);
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

test('a restart of the engine during a pull costs no try, however long it takes', async () => {
  failures = ['no more', 'no more'];
  pulls.begin(open('wl_a'));
  await clock.advance(3_000);
  awayUntilMs = clock.now() + 600_000;
  await clock.advance(599_000);
  expect(pulls.status(open('wl_a'))).toEqual({ state: 'pulling', progress: null });
  await clock.advance(60_000);
  expect(pulls.status(open('wl_a'))).toEqual({ state: 'ready' });
});

test.each([
  ['reset by peer', 3],
  ['unauthorized: authentication required', 1],
  ['pull access denied', 1],
  ['manifest unknown', 1],
  ['repository does not exist or may require login: not found', 1],
  ['no such image', 1],
  ['invalid reference format', 1],
])(
  'a public image that fails with %j is tried %d times, because only some failures may pass',
  async (detail, tries) => {
    failures = Array.from({ length: 4 }, () => detail);
    await pull(open('wl_a'));
    expect(logins).toHaveLength(tries);
    expect(pulls.status(open('wl_a'))).toEqual({ state: 'failed', detail, fault: 'image' });
  },
);

test.each([
  'toomanyrequests: You have reached your pull rate limit',
  'write /var/lib/docker/tmp/GetImageBlob1: no space left on device',
  'Get "https://registry/v2/": dial tcp: lookup registry on 127.0.0.53:53: server misbehaving',
  'Get "https://registry/v2/": dial tcp: lookup registry: no such host',
  'Get "https://registry/v2/": dial tcp 203.0.113.9:443: connect: connection refused',
  'read tcp 10.0.0.2:1->203.0.113.9:443: i/o timeout',
  'net/http: TLS handshake timeout',
  'connect: no route to host',
  'connect: network is unreachable',
])('a pull that fails three times with %j may succeed on another host', async (detail) => {
  failures = Array.from({ length: 4 }, () => detail);
  await pull(open('wl_a'));
  expect(logins).toHaveLength(3);
  expect(pulls.status(open('wl_a'))).toEqual({ state: 'failed', detail, fault: 'host' });
});

test('a pull that fails while the engine answers is given up after three tries', async () => {
  failures = Array.from({ length: 4 }, () => 'no more');
  await pull(open('wl_a'));
  expect(logins).toHaveLength(3);
  expect(pulls.status(open('wl_a'))).toEqual({ state: 'failed', detail: 'no more', fault: 'image' });
});

describe('a private image', () => {
  test('is pulled for each workload separately, with a new login each time', async () => {
    await pull(guarded('wl_a'), guarded('wl_b'));
    expect(asked).toEqual(['wl_a', 'wl_b']);
    expect(logins).toEqual([
      { kind: 'bearer', token: 'token 1' },
      { kind: 'bearer', token: 'token 2' },
    ]);
    expect(pulls.status(guarded('wl_c'))).toEqual({ state: 'none' });
  });

  test('that was pulled for another workload is used only after the control plane allows it', async () => {
    isHere = true;
    await pull(guarded('wl_a'));
    expect(asked).toEqual(['wl_a']);
    expect(pulls.status(guarded('wl_a'))).toEqual({ state: 'ready' });
    refusal = { kind: 'refused', detail: 'its login is wrong' };
    await pull(guarded('wl_b'));
    expect(asked).toEqual(['wl_a', 'wl_b']);
    expect(pulls.status(guarded('wl_b'))).toEqual({ state: 'failed', detail: 'its login is wrong', fault: 'image' });
    expect(logins).toEqual([]);
  });

  test('whose token expires during the pull is tried again with a new one', async () => {
    failures = ['unauthorized: token expired'];
    await pull(guarded('wl_a'));
    expect(asked).toHaveLength(2);
    expect(pulls.status(guarded('wl_a'))).toEqual({ state: 'ready' });
  });

  test('whose pull takes longer than its tokens last fails with that reason', async () => {
    failures = Array.from({ length: 3 }, () => 'unauthorized: token expired');
    await pull(guarded('wl_a'));
    expect(pulls.status(guarded('wl_a'))).toEqual({
      state: 'failed',
      detail: "the registry's token did not last until the image was whole: unauthorized: token expired",
      fault: 'image',
    });
  });

  test('waits for a control plane that is away, for as long as the workload is wanted', async () => {
    absences = 20;
    await pull(guarded('wl_a'));
    expect(pulls.status(guarded('wl_a'))).toEqual({ state: 'ready' });
    absences = Infinity;
    await pull(guarded('wl_b'));
    expect(pulls.status(guarded('wl_b'))).toEqual({ state: 'pulling', progress: null });
    pulls.keepOnly([]);
    const before = asked.length;
    await pull();
    expect(asked.length - before).toBeLessThanOrEqual(1);
    expect(pulls.status(guarded('wl_b'))).toEqual({ state: 'none' });
  });

  test('that its registry no longer has is not tried again', async () => {
    failures = ['manifest unknown'];
    await pull(guarded('wl_a'));
    expect(pulls.status(guarded('wl_a'))).toEqual({ state: 'failed', detail: 'manifest unknown', fault: 'image' });
    pulls.keepOnly([open('wl_a')]);
    expect(pulls.status(guarded('wl_a'))).toEqual({ state: 'none' });
  });
});

describe('a pull', () => {
  const GIB = 1024 ** 3;
  /** So many bytes in each second, until `total` or the abort. */
  const sends =
    (bytesPerSecond: number, total: number, more: Partial<PullNews> = {}): typeof registry =>
    async (onNews, signal) => {
      for (let done = 0; done < total && !signal.aborted; done = Math.min(total, done + bytesPerSecond)) {
        onNews({ done_bytes: done, total_bytes: total, downloading: true, ...more });
        await clock.sleep(1000, signal);
      }
      ended = signal.aborted;
    };
  let ended: boolean;
  const status = (): ReturnType<Pulls['status']> => pulls.status(open('wl_a'));
  beforeEach(() => (ended = false));

  test('ends after a minute if the registry is too slow, with the image as the cause, and is not tried again', async () => {
    registry = sends(PULL_BYTES_PER_SECOND_MIN - 1, 10 * GIB);
    pulls.begin(open('wl_a'));
    await clock.advance(59_999);
    expect(status()).toMatchObject({ state: 'pulling' });
    await clock.advance(1);
    expect(status()).toMatchObject({ state: 'failed', fault: 'image', detail: expect.stringContaining('in a minute') });
    expect(ended).toBe(true);
    await clock.advance(600_000);
    expect(logins).toHaveLength(1);
  });

  test('ends after a minute if the registry sends nothing', async () => {
    registry = (_, signal) => clock.sleep(1e9, signal);
    pulls.begin(open('wl_a'));
    await clock.advance(60_000);
    expect(status()).toMatchObject({ state: 'failed', fault: 'image' });
  });

  test('that is fast at first and too slow later ends too', async () => {
    registry = async (onNews, signal) => {
      await sends(100 * PULL_BYTES_PER_SECOND_MIN, 6000 * PULL_BYTES_PER_SECOND_MIN)?.(onNews, signal);
      await clock.sleep(1e9, signal);
    };
    pulls.begin(open('wl_a'));
    await clock.advance(119_999);
    expect(status()).toMatchObject({ state: 'pulling' });
    await clock.advance(60_000);
    expect(status()).toMatchObject({ state: 'failed', fault: 'image' });
  });

  test('that is being unpacked, or waits for others, does not count as slow', async () => {
    registry = sends(1, 800, { downloading: false });
    pulls.begin(open('wl_a'));
    await clock.advance(900_000);
    expect(status()).toMatchObject({ state: 'ready' });
  });

  test('may take the whole time limit for all tries together at the lowest allowed speed', async () => {
    failures = ['reset', 'reset'];
    registry = sends(2 * PULL_BYTES_PER_SECOND_MIN, 2 * PULL_BYTES_PER_SECOND_MIN * 500);
    pulls.begin(open('wl_a'));
    await clock.advance(PULL_MS_MAX);
    expect(status()).toMatchObject({ state: 'pulling' });
    await clock.advance(20_000);
    expect(status()).toMatchObject({ state: 'failed', fault: 'image', detail: expect.stringContaining('20 minutes') });
    expect(logins).toHaveLength(3);
  });

  test('ends at once if the image does not fit on the disk, with the host as the cause', async () => {
    roomBytes = 19 * GIB;
    registry = sends(100 * PULL_BYTES_PER_SECOND_MIN, 10 * GIB);
    pulls.begin(open('wl_a'));
    await clock.advance(1_000);
    expect(status()).toMatchObject({ state: 'failed', fault: 'host', detail: expect.stringContaining('10.0 GiB') });
    expect(ended).toBe(true);
  });

  test('leaves room for what other pulls still take, and counts an image once for all workloads that pull it', async () => {
    const other = desiredWorkload('wl_other', 'docker.io/library/other@sha256:1');
    const two = ['wl_a', 'wl_b'].map((id) => ({ ...open(id), pull_login: true }));
    registry = sends(100 * PULL_BYTES_PER_SECOND_MIN, 10 * GIB);
    // Unpacked, each image takes twice its 10 GiB.
    roomBytes = 39 * GIB;
    two.forEach(pulls.begin);
    await clock.advance(1_000);
    await pull(other);
    expect(pulls.status(other)).toMatchObject({ state: 'failed', fault: 'host' });
    expect(two.map(pulls.status)).toMatchObject([{ state: 'pulling' }, { state: 'pulling' }]);
  });

  test('that no workload needs any more ends, and a later pull of the same image is a new one', async () => {
    registry = sends(2 * PULL_BYTES_PER_SECOND_MIN, GIB);
    pulls.begin(open('wl_a'));
    await clock.advance(1_000);
    pulls.keepOnly([]);
    expect(status()).toEqual({ state: 'none' });
    pulls.begin(open('wl_a'));
    await clock.advance(1_000);
    expect(ended).toBe(true);
    expect(status()).toMatchObject({ state: 'pulling' });
    await clock.advance(520_000);
    expect(status()).toEqual({ state: 'ready' });
  });

  test('that no workload needs any more between two tries is not tried again', async () => {
    failures = ['EOF'];
    pulls.begin(open('a'));
    await clock.advance(0);
    expect(logins).toHaveLength(1);
    pulls.keepOnly([]);
    await clock.advance(60_000);
    expect(logins).toHaveLength(1);
  });

  test('reports its progress, and not every chunk', async () => {
    registry = sends(2 * PULL_BYTES_PER_SECOND_MIN, GIB);
    pulls.begin(open('wl_a'));
    await clock.advance(1_500);
    expect(status()).toEqual({
      state: 'pulling',
      progress: { done_bytes: 2 * PULL_BYTES_PER_SECOND_MIN, total_bytes: GIB },
    });
  });
});

describe('a change of a pull is reported', () => {
  let states: string[];
  /** The state of the pull at each report. */
  function openReported(engine: Partial<Engine>): Pulls {
    states = [];
    const whole = { version: async () => '1', inspectImage: async () => undefined, ...engine };
    const reported: Pulls = openPulls(whole as Engine, () => void states.push(reported.status(open('wl_a')).state), {
      clock,
      log: createLog('test', 'silent'),
      pullLogin: async () => null,
      hasRoom: async () => true,
    });
    return reported;
  }

  test('as it begins and as it ends, and for no second workload', async () => {
    const reported = openReported({ pull: async () => undefined });
    reported.begin(open('wl_a'));
    expect(states).toEqual(['pulling']);
    reported.begin(open('wl_b'));
    await clock.advance(1);
    expect(states).toEqual(['pulling', 'ready']);
  });

  test('with its progress four times a second, and not once nobody needs it', async () => {
    let news: (each: PullNews) => void = () => undefined;
    const reported = openReported({
      pull: (_image, _login, onNews) => {
        news = onNews;
        return new Promise(() => undefined);
      },
    });
    reported.begin(open('wl_a'));
    await clock.advance(1);
    states = [];
    const chunk = { done_bytes: 1, total_bytes: 2, downloading: true };
    news(chunk);
    await clock.advance(249);
    news(chunk);
    expect(states).toEqual(['pulling']);
    await clock.advance(1);
    news(chunk);
    expect(states).toEqual(['pulling', 'pulling']);
    reported.keepOnly([]);
    await clock.advance(1_000);
    news(chunk);
    expect(states).toHaveLength(2);
    expect(reported.status(open('wl_a'))).toEqual({ state: 'none' });
  });

  test('is not forgotten while it is under way, and begins anew once it is', async () => {
    let count = 0;
    const first = Promise.withResolvers<void>();
    const reported = openReported({
      pull: () => {
        count += 1;
        return count === 1 ? first.promise : Promise.resolve();
      },
    });
    reported.begin(open('wl_a'));
    await clock.advance(1);
    reported.forget(open('wl_a'));
    expect(reported.status(open('wl_a')).state).toBe('pulling');
    first.resolve();
    await clock.advance(1);
    expect(reported.status(open('wl_a')).state).toBe('ready');
    reported.forget(open('wl_a'));
    expect(reported.status(open('wl_a')).state).toBe('none');
    reported.begin(open('wl_a'));
    await clock.advance(1);
    expect([count, reported.status(open('wl_a')).state]).toEqual([2, 'ready']);
  });
});
