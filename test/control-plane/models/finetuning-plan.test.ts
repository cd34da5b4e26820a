// The promises of the plan of a fine-tuning job, over every mixture of facts.
import fc from 'fast-check';
import { expect, test } from 'vitest';
import type { Attempt } from '../../../control-plane/models/finetuning/attempts.ts';
import type { JobFileRow } from '../../../control-plane/models/finetuning/files.ts';
import { type Facts, plan } from '../../../control-plane/models/finetuning/plan.ts';
import type { Job } from '../../../control-plane/models/finetuning/store.ts';
import { QUIET_AFTER_START_MS, type Quiet } from '../../../control-plane/rental/instances/quiet.ts';
import type { ObservedJob } from '../../../shared/protocol/job.ts';
import { WORKLOAD_PHASES } from '../../../shared/protocol/workload.ts';
import { tunableModels } from '../../kit/models.ts';
import { NOTHING_OBSERVED } from '../../kit/world.ts';

const HOUR_MS = 3_600_000;
const NOW_MS = 100 * HOUR_MS;
const [{ fine_tuning: terms } = { fine_tuning: undefined }] = tunableModels();
if (terms === undefined) throw new Error('no model can be tuned');

const moment = fc.integer({ min: NOW_MS - 30 * HOUR_MS, max: NOW_MS });
const maybe = fc.option(moment, { nil: null });
const cameBack = (fromMs: number): Quiet => ({ fromMs, untilMs: fromMs + QUIET_AFTER_START_MS });

const anyJob: fc.Arbitrary<Job> = fc
  .record({
    status: fc.constantFrom('validating', 'queued', 'running'),
    cancel_ms: maybe,
    created_ms: moment,
    queued_ms: moment,
  })
  .map((drawn) => ({
    id: 'ftjob_1',
    org_id: 'o',
    api_key_id: 'k',
    model: 'tiny-base',
    training_file: 'file_1',
    file_key: 'files-blob_1',
    file_bytes: 1,
    file_sha256: '0',
    request: {
      method: { type: 'lora', lora: { lora_r: 8, lora_alpha: 16, lora_dropout: 0 } },
      seed: 1,
      suffix: null,
      metadata: null,
      gpu_preference: null,
    },
    terms,
    budget_ucents: 1n,
    charged_ucents: 0n,
    workload_id: null,
    tried_machine_ids: ['m'],
    error_code: null,
    error_message: null,
    event_count: 0,
    finished_ms: null,
    ...drawn,
  }));

const anyAttempt: fc.Arbitrary<Attempt> = fc
  .record({ created_ms: moment, started_ms: maybe, stopped_ms: maybe, offline_since_ms: maybe })
  .map((drawn) => ({
    id: 'wl_1',
    job_id: 'ftjob_1',
    machine_id: 'm',
    supplier_id: 's',
    gpu_type: 'H100_SXM',
    rate_ucents_per_hour: 1n,
    supplier_rate_ucents_per_hour: 1n,
    supplier_bps: 8_000,
    resume_file_id: null,
    resume_step: 0,
    run_ms_max: HOUR_MS,
    events_offset: 0,
    last_step: null,
    last_loss: null,
    charged_through_ms: null,
    charged_ucents: 0n,
    supplier_ucents: 0n,
    ...drawn,
  }));

const anyFile: fc.Arbitrary<JobFileRow> = fc
  .record({
    kind: fc.constantFrom('checkpoint', 'result'),
    state: fc.constantFrom('awaited', 'verified', 'wrong'),
    name: fc.constantFrom('a', 'b'),
  })
  .map((drawn) => ({
    id: 'ftckpt_1',
    job_id: 'ftjob_1',
    workload_id: 'wl_1',
    step: 1,
    loss: null,
    bytes: 1,
    sha256: '0',
    blob_key: 'finetuning-blob_1',
    created_ms: 0,
    ...drawn,
  }));

const results = [{ name: 'a', bytes: 1, sha256: '0'.repeat(64) }];
const anyObserved = fc
  .record({
    phase: fc.constantFrom(...WORKLOAD_PHASES),
    exit_code: fc.constantFrom(null, 0, 3, 137),
    stopped_at_limit: fc.boolean(),
    results: fc.constantFrom(null, [], results),
    ran_ms: fc.option(fc.integer({ min: 0, max: 30 * HOUR_MS }), { nil: undefined }),
  })
  .map(({ phase, ran_ms: ranMs, ...report }) => ({
    ...NOTHING_OBSERVED,
    workload_id: 'wl_1',
    phase,
    job: { detail: null, skipped_lines: 0, ...report, ...(ranMs === undefined ? {} : { ran_ms: ranMs }) },
  }));

const anyFacts: fc.Arbitrary<Facts> = fc.record({
  job: anyJob,
  attempt: fc.option(anyAttempt, { nil: undefined }),
  observed: fc.oneof(anyObserved, fc.constant('gone' as const), fc.constant(null)),
  endedMs: maybe,
  isRemoving: fc.boolean(),
  isOnline: fc.boolean(),
  files: fc.array(anyFile, { maxLength: 4 }),
  quiet: moment.map(cameBack),
});

test('succeeds only with verified results of a program that ended with 0', () => {
  fc.assert(
    fc.property(anyFacts, (facts) => {
      if (plan(facts, NOW_MS).do !== 'succeed') return;
      const { observed, files } = facts;
      expect(observed).toMatchObject({ phase: 'finished', job: { exit_code: 0, stopped_at_limit: false, results } });
      expect(files.some(({ kind, state, name }) => kind === 'result' && state === 'verified' && name === 'a')).toBe(
        true,
      );
    }),
    { numRuns: 5_000 },
  );
});

test('is cancelled only if its owner has asked, and its host has stopped it, is gone for half an hour, or has not removed it for as long', () => {
  fc.assert(
    fc.property(anyFacts, (facts) => {
      if (plan(facts, NOW_MS).do !== 'cancel') return;
      const { job, attempt, observed, isOnline, isRemoving } = facts;
      expect(job.cancel_ms).not.toBeNull();
      if (attempt === undefined || observed === 'gone') return;
      const hasStopped = observed !== null && ['stopped', 'removed', 'missing', 'finished'].includes(observed.phase);
      const isGone = !isOnline && NOW_MS - (attempt.offline_since_ms ?? NOW_MS) >= HOUR_MS / 2;
      const isStuck = isOnline && isRemoving && NOW_MS - (job.cancel_ms ?? NOW_MS) >= (2 * HOUR_MS) / 3;
      expect(hasStopped || isGone || isStuck).toBe(true);
    }),
    { numRuns: 5_000 },
  );
});

test('believes the run time of a host only if that shortens the charge', () => {
  const plannedStopMs = (facts: Facts): number | undefined => {
    const step = plan(facts, NOW_MS);
    return step.do === 'note-stop' ? step.atMs : undefined;
  };
  let shortened = 0;
  fc.assert(
    fc.property(anyFacts, (facts) => {
      const stopMs = plannedStopMs(facts);
      const { observed, attempt } = facts;
      if (stopMs === undefined || observed === null || observed === 'gone') return;
      const { ran_ms: ranMs, ...job } = observed.job ?? {};
      const silentMs = plannedStopMs({ ...facts, observed: { ...observed, job: job as ObservedJob } }) ?? NaN;
      const startedMs = attempt?.started_ms ?? 0;
      expect(silentMs).toBe(Math.max(facts.endedMs ?? 0, startedMs));
      expect(stopMs).toBeLessThanOrEqual(silentMs);
      expect(stopMs).toBeGreaterThanOrEqual(startedMs);
      if (stopMs === silentMs) return;
      expect(stopMs - startedMs).toBe(ranMs);
      shortened += 1;
    }),
    { numRuns: 5_000 },
  );
  expect(shortened).toBeGreaterThan(0);
});

test('believes a host that it ran a program to the limit only if the start was first seen right after our own start', () => {
  const MINUTE_MS = 60_000;
  const LIMIT_MS = HOUR_MS - MINUTE_MS;
  const openedMs = NOW_MS - 8 * HOUR_MS;
  const duration = fc.integer({ min: 0, max: 2 * HOUR_MS });
  const seen = fc.integer({ min: -4 * MINUTE_MS, max: 4 * MINUTE_MS });
  let believed = 0;
  fc.assert(
    fc.property(anyFacts, seen, fc.tuple(duration, duration, duration), (facts, seenMs, [waitedMs, ranMs, saidMs]) => {
      const startedMs = openedMs + seenMs;
      const times = { created_ms: startedMs - waitedMs, started_ms: startedMs, stopped_ms: startedMs + ranMs };
      const report = { exit_code: 0, stopped_at_limit: true, results: [], detail: null, skipped_lines: 0 };
      const step = plan(
        {
          ...facts,
          quiet: cameBack(openedMs),
          job: { ...facts.job, status: 'running', cancel_ms: null },
          attempt: facts.attempt && { ...facts.attempt, ...times },
          observed: { ...NOTHING_OBSERVED, workload_id: 'wl_1', phase: 'finished', job: { ...report, ran_ms: saidMs } },
        },
        NOW_MS,
      );
      if (step.do !== 'exhaust' || ranMs >= LIMIT_MS) return;
      believed += 1;
      expect(seenMs).toBeGreaterThanOrEqual(0);
      expect(seenMs).toBeLessThanOrEqual(2 * MINUTE_MS);
      expect(waitedMs).toBeGreaterThan(seenMs);
      expect(Math.min(saidMs, waitedMs + ranMs)).toBeGreaterThanOrEqual(LIMIT_MS);
    }),
    { numRuns: 5_000 },
  );
  expect(believed).toBeGreaterThan(0);
});

test('gives a host the whole time of a limit again if this control plane could not hear it before', () => {
  const limits: Record<string, number> = {
    'the host did not start the job in time': 3 * 60_000,
    'the host did not send the files of the job in time': 2 * HOUR_MS,
    'the budget is used up': 10 * 60_000,
  };
  const given = new Set<string>();
  const linked = anyFacts.map(({ attempt, ...facts }): Facts => ({
    ...facts,
    job: { ...facts.job, cancel_ms: null },
    isOnline: true,
    attempt: attempt && { ...attempt, offline_since_ms: null },
  }));
  fc.assert(
    fc.property(linked, (facts) => {
      const { observed, quiet } = facts;
      const step = plan(facts, NOW_MS);
      const isSilent = observed === null || observed === 'gone' || observed.phase !== 'finished';
      const because =
        step.do === 'exhaust' && isSilent ? 'the budget is used up' : step.do === 'leave' ? step.because : '';
      const limitMs = limits[because];
      if (limitMs === undefined) return;
      given.add(because);
      const heardMs = because === 'the host did not send the files of the job in time' ? (facts.endedMs ?? 0) : 0;
      expect(NOW_MS - Math.max(quiet.fromMs, heardMs)).toBeGreaterThanOrEqual(limitMs);
    }),
    { numRuns: 5_000 },
  );
  expect([...given].toSorted()).toEqual(Object.keys(limits).toSorted());
});

test('lets the host of a cancelled job send its last checkpoint after this control plane was away', () => {
  fc.assert(
    fc.property(anyFacts, (facts) => {
      const cancelMs = facts.job.cancel_ms;
      if (plan(facts, NOW_MS).do !== 'remove' || cancelMs === null) return;
      expect(NOW_MS - Math.max(cancelMs, facts.quiet.fromMs)).toBeGreaterThanOrEqual(10 * 60_000);
    }),
    { numRuns: 5_000 },
  );
});

test('leaves a machine that is away only after ten minutes, of which this control plane has seen all', () => {
  fc.assert(
    fc.property(anyFacts, (facts) => {
      const step = plan(facts, NOW_MS);
      if (step.do !== 'leave' || step.because !== 'its machine is away') return;
      expect(facts.isOnline).toBe(false);
      expect(NOW_MS - (facts.attempt?.offline_since_ms ?? NOW_MS)).toBeGreaterThanOrEqual(10 * 60_000);
      expect(NOW_MS - facts.quiet.fromMs).toBeGreaterThanOrEqual(10 * 60_000);
    }),
    { numRuns: 5_000 },
  );
});
