// The next step of a video job in every status, and each time limit at both edges.
import { describe, expect, test } from 'vitest';
import { againMs, planJob } from '../../../control-plane/models/videos/plan.ts';
import type { Job } from '../../../control-plane/models/videos/store.ts';

const T0 = 1_000_000;
const MINUTE = 60_000;
const HOUR = 60 * MINUTE;
const SERVER = { videoMs: 30 * MINUTE };

const QUEUED: Job = {
  id: 'vid_x',
  org_id: 'org_x',
  api_key_id: 'apk_x',
  model_id: 'a/b',
  status: 'queued',
  progress: 0,
  seconds: 4,
  request: { prompt: 'x', parameters: { seconds: 4 } },
  size: null,
  held_ucents: 5n,
  charged_ucents: 0n,
  blob_key: null,
  upstream: null,
  upstream_job_id: null,
  upstream_open: false,
  submissions_lost: 0,
  failures: 0,
  error_code: null,
  error_message: null,
  created_ms: T0,
  started_ms: null,
  committed_ms: null,
  ended_ms: null,
  expires_ms: null,
  deleted_ms: null,
};
const TAKEN: Job = { ...QUEUED, upstream: 'http://a', upstream_job_id: 'v1', upstream_open: true };
const RUNNING: Job = { ...TAKEN, status: 'in_progress', started_ms: T0 };
const FINISHED: Job = { ...RUNNING, committed_ms: T0 };
const COMPLETED: Job = { ...FINISHED, status: 'completed', upstream_open: false, expires_ms: T0 + 24 * HOUR };
const OVER: Job = { ...TAKEN, status: 'cancelled', upstream_open: false };

describe('the next step', () => {
  // Specification 8: Video retention: 24 hours after completion; a never-started job expires about 2 hours after submission.
  test.each<[string, Job, number, object]>([
    ['a new job is submitted', QUEUED, 0, { do: 'submit' }],
    ['one that is at no server within two hours', QUEUED, 2 * HOUR - 1, { do: 'submit' }],
    ['one that is at no server at two hours', QUEUED, 2 * HOUR, { do: 'expire' }],
    ['one that waits in the queue of its server', TAKEN, 2 * HOUR - 1, { do: 'poll' }],
    ['one that still waits there at two hours is asked about', TAKEN, 2 * HOUR, { do: 'poll', late: 'queued' }],
    ['one whose second submission got lost', { ...QUEUED, submissions_lost: 2 }, 0, { do: 'submit' }],
    ['one whose third got lost', { ...QUEUED, submissions_lost: 3 }, 0, { do: 'fail', code: 'upstream_error' }],
    [
      'one whose third was under way when we died',
      { ...QUEUED, submissions_lost: 2, upstream: 'http://a' },
      0,
      { do: 'fail', code: 'upstream_error' },
    ],
    ['one in progress is asked about', RUNNING, 30 * MINUTE - 1, { do: 'poll', late: null }],
    ['one whose time is over is asked about once more', RUNNING, 30 * MINUTE, { do: 'poll', late: 'in_progress' }],
    ['one that started late has its own time', { ...RUNNING, started_ms: T0 + HOUR }, HOUR, { do: 'poll' }],
    ['a finished one is fetched', FINISHED, 15 * MINUTE - 1, { do: 'fetch' }],
    [
      'one that cannot be fetched in time',
      { ...FINISHED, failures: 5 },
      15 * MINUTE,
      { do: 'fail', code: 'upstream_error' },
    ],
    ['one that was rarely tried to fetch in time', { ...FINISHED, failures: 4 }, 15 * MINUTE, { do: 'fetch' }],
    ['a completed one waits for its end', COMPLETED, 24 * HOUR - 1, { do: 'wait', untilMs: T0 + 24 * HOUR }],
    ['a completed one at its end', COMPLETED, 24 * HOUR, { do: 'expire' }],
    ['the copy of a completed one goes first', { ...COMPLETED, upstream_open: true }, 0, { do: 'release' }],
    ['one that is over', OVER, 99 * HOUR, { do: 'wait', untilMs: null }],
    ['the work on one that is over', { ...OVER, upstream_open: true }, 0, { do: 'release' }],
  ])('%s', (_what, job, afterMs, expected) => {
    expect(planJob(job, SERVER, T0 + afterMs)).toMatchObject(expected);
  });

  test('fails a job whose server is not in the catalog any more, and waits if no server has the job', () => {
    expect(planJob(RUNNING, undefined, T0)).toMatchObject({ do: 'fail', code: 'upstream_error' });
    expect(planJob(QUEUED, undefined, T0)).toEqual({ do: 'submit' });
  });
});

test.each([
  [0, 1_000],
  [20_000, 1_000],
  [20_020, 1_001],
  [299_980, 14_999],
  [300_000, 15_000],
  [HOUR, 15_000],
])('a job of %d ms has its next status request after %d ms', (ageMs, expected) => {
  expect(againMs(ageMs)).toBe(expected);
});
