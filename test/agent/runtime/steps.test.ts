// What each step of the plan does, in which order, and which failure becomes the workload's own. The test plays everything around it.
import { beforeEach, describe, expect, test } from 'vitest';
import { GPUS_DIFFER_CODE } from '../../../agent/gpus/visible.ts';
import type { ContainerShape, LocalImage } from '../../../agent/runtime/engine.ts';
import type { Step } from '../../../agent/runtime/plan.ts';
import type { WorkloadRecord } from '../../../agent/runtime/records.ts';
import { createSteps, type StepsDeps } from '../../../agent/runtime/steps.ts';
import { createLog } from '../../../shared/log.ts';
import type { DesiredWorkload } from '../../../shared/protocol/workload.ts';
import { desiredWorkload } from '../desired-workload.ts';

const WORKLOAD = desiredWorkload('w', 'app');
const SERVER_NOW_MS = 777;

let calls: string[];
/** How often a step has said that the engine refuses GPUs. */
let refusals: number;
let record: Partial<WorkloadRecord>;
let image: LocalImage | undefined;
/** The calls that fail, and how. */
let faults: Record<string, string>;
let exit: { code: number; reason: string; out_of_memory?: boolean };
let shape: ContainerShape | undefined;
/** The workloads of the desired state. */
let held: DesiredWorkload[];
/** What happens while a call is at work. */
let meanwhile: Record<string, () => void>;
beforeEach(() => {
  [calls, refusals] = [[], 0];
  record = {};
  faults = {};
  exit = { code: 1, reason: 'it ended with code 1' };
  shape = undefined;
  [held, meanwhile] = [[WORKLOAD], {}];
  image = { digest: 'sha256:1', entrypoint: ['run'], cmd: [], env: [], user: '', working_dir: '', stop_signal: '' };
});

const act = async (call: string): Promise<void> => {
  calls.push(call);
  meanwhile[call]?.();
  const fault = faults[call];
  if (fault !== undefined) throw new Error(fault);
};

function steps(): ReturnType<typeof createSteps> {
  const deps = {
    desired: { serverNowMs: () => SERVER_NOW_MS, held: () => ({ workloads: held }) },
    log: createLog('test', 'silent'),
    engine: {
      inspectImage: async () => image,
      create: async (made: ContainerShape) => {
        shape = made;
        await act('create');
        return 'c-new';
      },
      start: (id: string) => act(`start ${id}`),
      lastExit: async () => exit,
      stopAndCut: () => act('cut'),
      remove: () => act('remove'),
    },
    holders: {
      prepare: async (_id: string, _launch: unknown, uid: number | null) => {
        await act(`prepare for ${uid}`);
        return { entrypoint: ['guest'], mounts: [{ source: 'a', target: 'b' }] };
      },
      ensure: (id: string) => act(`ensure ${id}`),
      pause: () => act('pause'),
      end: () => act('end'),
    },
    records: {
      all: () => new Map(Object.keys(record).length === 0 ? [] : [['w', record]]),
      change: async (_id: string, patch: Partial<WorkloadRecord>) => {
        await act(`note ${Object.keys(patch).join(' ')}`);
        record = { ...record, ...patch };
      },
      bury: () => act('bury'),
    },
    pulls: { begin: () => void calls.push('pull'), forget: () => void calls.push('forget') },
    images: { use: (name: string) => act(`use ${name}`) },
    machine: () => ({ cpu_cores: 8, ram_bytes: 2 ** 34, gpu_count: 1, limits: { memlock_bytes: -1, nofile: 9 } }),
    etcFiles: async (_id: string, hostname: string) => [{ source: hostname, target: '/etc/hostname' }],
    assertFenced: () => act('fenced'),
    onGpusRefused: () => void (refusals += 1),
  };
  return createSteps(deps as unknown as StepsDeps);
}
const perform = (step: Step, attempt = 1): Promise<void> => steps().perform(step, attempt);
const PULL: Step = { kind: 'pull', workload_id: 'w', workload: WORKLOAD };
const CREATE: Step = { kind: 'create', workload_id: 'w', workload: WORKLOAD };
const START: Step = { kind: 'start', workload_id: 'w', container_id: 'c', gpu_uuids: [] };

describe('a creation', () => {
  test('starts the container once it is recorded and the fence stands', async () => {
    await perform(CREATE);
    expect(calls.toSorted()).toEqual(
      ['create', 'fenced', 'note container_id image_digest made_ms', 'prepare for 0', 'start c-new'].toSorted(),
    );
    expect(calls.at(-1)).toBe('start c-new');
    expect(record).toMatchObject({ container_id: 'c-new', image_digest: 'sha256:1' });
    expect(shape).toMatchObject({
      entrypoint: ['guest'],
      mounts: [
        { source: 'a', target: 'b' },
        { source: 'i-w', target: '/etc/hostname' },
      ],
    });
  });

  test('pulls the image again if it is gone, and starts nothing', async () => {
    image = undefined;
    await perform(CREATE);
    expect(calls.toSorted()).toEqual(['fenced', 'forget']);
  });

  test('fails if the image has no command, and starts nothing', async () => {
    image = { ...(image as LocalImage), entrypoint: [] };
    await perform(CREATE);
    expect(record.failure).toMatchObject({ code: 'no_command' });
    expect(calls).not.toContain('create');
  });

  test.each([
    ['', 0],
    ['root', 0],
    ['root:1', 0],
    ['1000', 1_000],
    ['1000:50', 1_000],
    ['123456789', 123_456_789],
    ['1234567890', null],
    ['app', null],
    ['1a', null],
  ])('for the user %j prepares a folder of %j', async (user, uid) => {
    image = { ...(image as LocalImage), user };
    await perform(CREATE);
    expect(calls).toContain(`prepare for ${uid}`);
  });
});

describe.each([
  ['a pull', PULL, 'use app'],
  ['a creation', CREATE, 'create'],
  ['a start', START, 'start c'],
] as const)('%s that fails', (_what, step, call) => {
  test.each([1, 2])('is tried again after attempt %d', async (attempt) => {
    faults[call] = 'no room';
    await expect(perform(step, attempt)).rejects.toThrow('no room');
    expect(record.failure).toBeUndefined();
  });

  test.each([
    ['no room', 'start_failed'],
    ['could not select device driver', 'gpu_unavailable'],
    ['NVIDIA-SMI has failed', 'gpu_unavailable'],
    ['unresolvable CDI devices', 'gpu_unavailable'],
  ])('is the failure of the workload after the third attempt: %s is %s', async (detail, code) => {
    faults[call] = detail;
    await perform(step, 3);
    expect(record.failure).toEqual({ code, detail });
    expect(refusals).toBe(code === 'gpu_unavailable' ? 1 : 0);
  });

  test('makes the agent ask whether the engine gives GPUs, at its first attempt already', async () => {
    faults[call] = 'could not select device driver "nvidia" with capabilities: [[gpu]]';
    await expect(perform(step, 1)).rejects.toThrow('device driver');
    expect(refusals).toBe(1);
  });

  test.each([
    ['unable to find user app: no matching entries in passwd file', undefined],
    ['unable to find group app: no matching entries in group file', undefined],
    ['uids and gids must be in range 0-2147483647', undefined],
    ['Cannot mkdir: /etc/passwd is not a directory', undefined],
    [
      'cannot mount volume over existing file, file exists /var/lib/docker/overlay2/a1/merged/etc/passwd',
      'cannot mount volume over existing file, file exists /etc/passwd',
    ],
    ['lstat /data/overlay2/a1/merged/etc/passwd/x: not a directory', 'lstat /etc/passwd/x: not a directory'],
  ])('is a failure of the image at once: %s', async (detail, shown = detail) => {
    faults[call] = `(HTTP code 500) server error - ${detail} `;
    await perform(step, 1);
    const words = `the image cannot be run: (HTTP code 500) server error - ${shown} `;
    expect(record.failure).toEqual({ code: 'image_unusable', detail: words });
  });

  test('is tried without end if the workload was reachable before', async () => {
    record = { container_id: 'c', ever_running: true };
    faults[call] = 'no room';
    await expect(perform(step, 9)).rejects.toThrow('no room');
    expect(record.failure).toBeUndefined();
  });
});

describe.each([
  ['failed', () => void (record = { ...record, failure: { code: 'engine_unavailable', detail: 'it hung' } })],
  ['been ordered gone', () => void (held = [{ ...WORKLOAD, desired: 'removed' }])],
  ['been stopped', () => void (record = { ...record, removing: true })],
])('a step of a workload that has %s meanwhile', (_what, end) => {
  test('creates nothing if it has not come to that', async () => {
    meanwhile['prepare for 0'] = end;
    await perform(CREATE);
    expect(calls.toSorted()).toEqual(['fenced', 'prepare for 0']);
  });

  test('removes a container that was just created, and forgets it', async () => {
    meanwhile['create'] = end;
    await perform(CREATE);
    expect(calls.slice(-2)).toEqual(['remove', 'note container_id']);
    expect(calls).not.toContain('start c-new');
    expect(record.container_id).toBeNull();
  });

  test('starts nothing, and stops what it was just starting', async () => {
    meanwhile['fenced'] = end;
    await perform(START);
    expect(calls).toEqual(['note container_id', 'fenced']);
    [calls, meanwhile, held] = [[], { 'start c': end }, [WORKLOAD]];
    record = { container_id: 'c' };
    await perform(START);
    expect(calls).toEqual(['fenced', 'start c', 'cut']);
  });

  test('that fails is no failure of its own', async () => {
    meanwhile['create'] = end;
    faults['create'] = 'the engine was restarted';
    await perform(CREATE, 3);
    expect(record.failure?.code).not.toBe('start_failed');
  });
});

test('a workload that the desired state has lost meanwhile is started', async () => {
  meanwhile['create'] = () => void (held = []);
  await perform(CREATE);
  expect(calls.at(-1)).toBe('start c-new');
});

test.each([CREATE, START])('a $kind that the fence fails starts nothing', async (step) => {
  faults['fenced'] = 'no fence';
  await expect(perform(step)).rejects.toThrow('no fence');
  expect(calls.some((each) => each.startsWith('start'))).toBe(false);
});

describe('a start', () => {
  test('records the container if that is not known, and only then', async () => {
    await perform(START);
    expect(calls).toEqual(['note container_id', 'fenced', 'start c']);
    expect(record).toMatchObject({ container_id: 'c' });
    calls = [];
    await perform(START);
    expect(calls).toEqual(['fenced', 'start c']);
  });

  test.each<[number, number, WorkloadRecord['failure'] | undefined]>([
    [1, GPUS_DIFFER_CODE, undefined],
    [
      2,
      GPUS_DIFFER_CODE,
      { code: 'gpu_unavailable', detail: 'the container does not see exactly the GPUs that it was given' },
    ],
    [3, 1, undefined],
    [4, 1, { code: 'start_failed', detail: 'the container does not stay up: it ran out of memory' }],
  ])('at attempt %d after an exit with %d fails with %j', async (attempt, code, failure) => {
    exit = { code, reason: 'it ran out of memory' };
    await perform(START, attempt);
    expect(record.failure).toEqual(failure);
    expect(calls.includes('start c')).toBe(failure === undefined);
  });

  test('is never a failure if the workload was reachable before', async () => {
    record = { container_id: 'c', ever_running: true };
    exit = { code: GPUS_DIFFER_CODE, reason: '' };
    await perform(START, 9);
    expect(calls).toEqual(['fenced', 'start c']);
  });
});

test('a pull counts as a use of the image before it begins; a holder is connected, and ended until it is needed again', async () => {
  await perform(PULL);
  await perform({ kind: 'holder', workload_id: 'w' });
  await perform({ kind: 'end-holder', workload_id: 'w' });
  expect(calls).toEqual(['use app', 'pull', 'ensure w', 'pause']);
});

test.each([
  ['guest_silent', ['forget', 'cut', 'note failure']],
  ['start_failed', ['forget', 'note failure']],
] as const)('a failure %s is recorded, and the next launch pulls its image again', async (code, expected) => {
  await perform({ kind: 'fail', workload_id: 'w', workload: WORKLOAD, code, detail: 'x' });
  expect(calls).toEqual(expected);
  expect(record.failure).toEqual({ code, detail: 'x' });
});

describe('an end', () => {
  test('is recorded before the container is cut off, and its time is that of the control plane', async () => {
    await perform({ kind: 'stop', workload_id: 'w' });
    expect(calls).toEqual(['note removing', 'cut', 'end', 'note stopped_ms']);
    expect(record).toEqual({ removing: true, stopped_ms: SERVER_NOW_MS });
  });

  test('cuts the container off although it cannot be recorded', async () => {
    faults['note removing'] = 'no space';
    await perform({ kind: 'stop', workload_id: 'w' });
    expect(calls).toContain('cut');
  });

  test('removes the container and its holder before the record becomes a tombstone', async () => {
    await perform({ kind: 'remove', workload_id: 'w' });
    expect(calls).toEqual(['remove', 'end', 'bury']);
    faults['remove'] = 'busy';
    calls = [];
    await expect(perform({ kind: 'remove', workload_id: 'w' })).rejects.toThrow('busy');
    expect(calls).toEqual(['remove']);
  });
});

describe('the death of a container whose program runs once', () => {
  test.each([
    [true, 'out_of_memory'],
    [false, 'container_died'],
  ])('is recorded with its cause, and nothing is started (out of memory: %s)', async (isStarved, code) => {
    record = { container_id: 'c', ever_running: true };
    exit = { code: 137, reason: 'it ended', out_of_memory: isStarved };
    await perform({ kind: 'died', workload_id: 'w', container_id: 'c' });
    expect(record.failure).toEqual({ code, detail: 'it ended' });
    expect(calls).toEqual(['note failure']);
  });
});
