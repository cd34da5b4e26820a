// Creates a job: every refusal comes before anything is stored, and the budget is held in the same transaction. Quotes say before what a training
// file would cost with each base model: a range, because machines are not equally fast.
import type { CreateFineTuningJob, FineTuningQuote } from '../../../shared/api/fine-tuning.ts';
import { fail, failField } from '../../../shared/errors.ts';
import { FINE_TUNING_BUDGET_USD_MAX, FINE_TUNING_OPEN_PER_ORG_MAX } from '../../../shared/limits.ts';
import { ceilToCents, dollarText, ucentsFromDollars, dollarsFromUcents } from '../../../shared/money.ts';
import type { Query, Tx } from '../../base/db/db.ts';
import type { Call, Reply } from '../../base/http/route.ts';
import { isOffered } from '../../fleet/supply/offerings.ts';
import { wallet } from '../../money/ledger/accounts.ts';
import { unpaidLaunchesMs } from '../../rental/instances/standing.ts';
import { GIVEN_UP_MS_MIN, refuseUnpaidHolds, UNPAID_WINDOW_MS } from '../../rental/instances/unpaid-holds.ts';
import { type FineTuning, ucentsPerHour } from '../catalog/fine-tuning.ts';
import type { Catalog } from '../catalog/catalog.ts';
import { findFile, type FileRow } from '../files/store.ts';
import type { FineTuningDeps } from './deps.ts';
import { appendEvents } from './events.ts';
import { holdId } from './money.ts';
import { preferredTypes } from './place.ts';
import * as store from './store.ts';
import { jobView } from './view.ts';
import type { TrainingReport } from '../../../shared/api/file.ts';

export type CreateCall = Pick<Call<undefined, undefined, CreateFineTuningJob>, 'caller' | 'body' | 'settle'>;

const SEED = 42;
/** So many cancelled jobs are more than any budget that makes sense. */
const UNPAID_READ_MAX = 10_000;

/** @throws ServiceError `model_not_found`, `not_found`, `validation_failed`, `rate_limit_exceeded`, `insufficient_balance` */
export async function createJob(call: CreateCall, deps: FineTuningDeps): Promise<Reply> {
  const { caller, body } = call;
  const terms = termsOf(body.model, deps.catalog);
  const wantedUcents = readBudget(body.svc?.max_budget_usd, terms);
  const { ids, clock } = deps;
  const nowMs = clock.now();
  const reply = await deps.db.tx('finetuning.create', async (tx) => {
    await tx.lock('org', caller.orgId);
    await refuseTooMany(tx, caller.orgId);
    await refuseUnpaid(tx, caller.orgId, { terms, nowMs }, deps);
    await refuseUnknownTypes(tx, body.svc?.gpu_preference ?? null);
    const file = await readFile(tx, caller.orgId, body.training_file);
    const budgetUcents = wantedUcents ?? usualBudgetUcents(file.report, terms);
    const job: store.NewJob = {
      id: ids.prefixed('ftjob'),
      org_id: caller.orgId,
      api_key_id: caller.principalId,
      model: terms.base_model,
      training_file: file.id,
      file_key: file.blob_key,
      file_bytes: file.bytes,
      file_sha256: file.sha256,
      request: requestOf(body),
      terms,
      budget_ucents: budgetUcents,
      created_ms: nowMs,
    };
    await deps.ledger.setHold(tx, holdId(job.id), wallet(caller.orgId), budgetUcents);
    await store.insertJob(tx, job);
    const row = await store.findJob(tx, job.id);
    if (row === undefined) throw new Error(`the job ${job.id} is not there`);
    const message = `The job was created. $${dollarText(budgetUcents)} are held for it.`;
    await appendEvents(tx, row, [{ level: 'info', message }], { ids, nowMs });
    const made: Reply = { status: 200, body: jobView(row, []) };
    await call.settle(tx, made);
    return made;
  });
  deps.nudge();
  return reply;
}

/** Quotes for the file: one for each base model, in the order of the model names. */
export function quotesOf(report: TrainingReport, { models }: Pick<Catalog, 'models'>): FineTuningQuote[] {
  return models
    .flatMap(({ fine_tuning: tuning }) => (tuning === undefined ? [] : [quoteOf(report, tuning)]))
    .toSorted((a, b) => (a.model < b.model ? -1 : 1));
}

/** The smallest budget: it pays for the first minutes. */
function minBudgetUcents(terms: FineTuning): bigint {
  return ceilToCents((ucentsPerHour(terms) * BigInt(terms.budget_minutes_min)) / 60n);
}

/** How the base model is trained. @throws ServiceError `model_not_found`, `validation_failed` for a model that is not tunable */
function termsOf(name: string, catalog: Catalog): FineTuning {
  const found = catalog.models.find(({ fine_tuning: tuning }) => tuning?.base_model === name);
  if (found?.fine_tuning !== undefined) return found.fine_tuning;
  const known = catalog.models.find(({ id, aliases }) => id === name || aliases.includes(name));
  if (known === undefined)
    return fail('model_not_found', {
      detail:
        'There is no such base model. GET /v1/models shows fine_tune_base_model of each model that can be fine-tuned.',
      errors: [{ field: 'model', rule: 'must be the fine_tune_base_model of a model' }],
    });
  const base = known.fine_tuning?.base_model;
  return failField(
    'model',
    base === undefined ? `cannot be fine-tuned if it is ${known.id}` : `must be ${base} to fine-tune ${known.id}`,
  );
}

/** Undefined if the request leaves the budget to us. */
function readBudget(dollars: number | null | undefined, terms: FineTuning): bigint | undefined {
  if (dollars == null) return undefined;
  const least = minBudgetUcents(terms);
  const budget = ucentsFromDollars(dollars);
  if (budget !== undefined && budget >= least && dollars <= FINE_TUNING_BUDGET_USD_MAX) return budget;
  const bounds = `from ${dollarText(least)} to ${FINE_TUNING_BUDGET_USD_MAX} dollars for this model`;
  return failField('svc.max_budget_usd', `must be ${bounds}`);
}

/** What the job costs on a slow machine, within the bounds of a budget. */
function usualBudgetUcents(report: TrainingReport, terms: FineTuning): bigint {
  const { max_usd: slow, min_budget_usd: least } = quoteOf(report, terms);
  const dollars = Math.min(Math.max(slow, least), FINE_TUNING_BUDGET_USD_MAX);
  return ucentsFromDollars(dollars) ?? minBudgetUcents(terms);
}

function requestOf({ method, seed, suffix, metadata, svc }: CreateFineTuningJob): store.Request {
  return {
    method,
    seed: seed ?? SEED,
    suffix: suffix ?? null,
    metadata: metadata ?? null,
    gpu_preference: svc?.gpu_preference ?? null,
  };
}

async function refuseTooMany(tx: Tx, orgId: string): Promise<void> {
  if ((await store.countOpen(tx, orgId)) < FINE_TUNING_OPEN_PER_ORG_MAX) return;
  fail('rate_limit_exceeded', {
    detail: `This organisation may have ${FINE_TUNING_OPEN_PER_ORG_MAX} fine-tuning jobs in progress at once. Try again when one of them has ended.`,
    retryAfterSeconds: 60,
  });
}

/**
 * The start of a job is free, and so is what it trains after its last file. Many jobs that are cancelled or that fail would keep hosts from earning.
 * So the free time beyond the time that such a job has paid counts.
 */
async function refuseUnpaid(
  tx: Tx,
  orgId: string,
  { terms, nowMs }: { terms: FineTuning; nowMs: number },
  { unpaidGpuHoursMax: gpuHoursMax }: FineTuningDeps,
): Promise<void> {
  const window = { sinceMs: nowMs - UNPAID_WINDOW_MS, heldMsMin: GIVEN_UP_MS_MIN, limit: UNPAID_READ_MAX };
  const jobsMs = (await store.unpaidJobs(tx, orgId, window)).reduce(
    (sum, { terms: { gpu_count: gpus }, held_ms: heldMs, paid_ms: paidMs }) =>
      sum + gpus * Math.max(heldMs - paidMs - paidMs, 0),
    0,
  );
  const launchesMs = await unpaidLaunchesMs(tx, orgId, nowMs);
  await refuseUnpaidHolds(tx, orgId, { gpuCount: terms.gpu_count, nowMs, gpuHoursMax, launchesMs, jobsMs });
}

async function refuseUnknownTypes(query: Query, preference: string | null): Promise<void> {
  for (const gpuType of preferredTypes(preference)) {
    if (await isOffered(query, { gpuType, diskGb: null })) continue;
    failField('svc.gpu_preference', 'must name GPU types of GET /v1/gpu-types, with commas between them');
  }
}

/**
 * Finds the training file. A file that has faults is stored too, but it cannot be used for training.
 * @throws ServiceError `not_found`, `validation_failed`
 */
async function readFile(tx: Tx, orgId: string, id: string): Promise<FileRow> {
  const file = await findFile(tx, orgId, id);
  if (file === undefined)
    return fail('not_found', {
      detail: 'There is no such file. Upload it first: POST /v1/files.',
      errors: [{ field: 'training_file', rule: 'must be the id of a file of this organisation' }],
    });
  if (file.report.valid) return file;
  const [problem] = file.report.problems;
  const where = problem?.line == null ? '' : `line ${problem.line}: `;
  return failField(
    'training_file',
    `must be a file without faults, and this one has some (${where}${problem?.message ?? 'see its report'})`,
  );
}

function quoteOf({ estimated_tokens: tokens }: TrainingReport, terms: FineTuning): FineTuningQuote {
  const trained = tokens * terms.epochs;
  const { min, max } = terms.tokens_per_gpu_second;
  return {
    object: 'fine_tuning.quote',
    model: terms.base_model,
    estimated_tokens: trained,
    min_usd: dollars(trained, max, terms),
    max_usd: dollars(trained, min, terms),
    min_budget_usd: dollarsFromUcents(minBudgetUcents(terms)),
  };
}

/**
 * The price for this number of tokens at this speed. All GPUs of a job train, and all are paid. Rounded up to whole seconds of one GPU and to
 * whole cents.
 */
function dollars(tokens: number, perGpuSecond: number, terms: FineTuning): number {
  const gpuSeconds = BigInt(Math.ceil(tokens / perGpuSecond));
  return dollarsFromUcents(ceilToCents(gpuSeconds * BigInt(terms.gpu_second_microcents)));
}
