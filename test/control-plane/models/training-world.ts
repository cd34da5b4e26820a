// A world in which models can be fine-tuned: the test plays the host of a job and drives time.
import { createHash } from 'node:crypto';
import { Readable } from 'node:stream';
import { findAttempt, type Attempt } from '../../../control-plane/models/finetuning/attempts.ts';
import { findJob, type Job } from '../../../control-plane/models/finetuning/store.ts';
import { insertFile } from '../../../control-plane/models/files/store.ts';
import { payable, wallet } from '../../../control-plane/money/ledger/accounts.ts';
import { CreateFineTuningJob, type FineTuningJob } from '../../../shared/api/fine-tuning.ts';
import type { JobEvent, JobUrlPurpose, ObservedJob } from '../../../shared/protocol/job.ts';
import type { ObservedWorkload } from '../../../shared/protocol/workload.ts';
import { tunableModels } from '../../kit/models.ts';
import type { MachineOptions, MadeMachine } from '../../kit/machines.ts';
import { NOTHING_OBSERVED, openWorld, type World, type WorldAccount, type WorldOutside } from '../../kit/world.ts';

/** A second of a job costs one cent, and an hour of its machine half of that. */
const CENT = 1_000_000n;
const BUDGET_USD = 100;
const CUSTOMER_CENTS = 50_000;
const DOLLARS_PER_HOUR = 18;

export interface Training {
  world: World;
  who: WorldAccount;
  fileId: string;
  /** The same jobs, driven by a control plane that has just started. */
  restart(): Promise<Training>;
  /** The same world as another organisation sees it. */
  another(): Promise<Training>;
  /** A machine that the operator trusts. */
  machine(options?: MachineOptions): Promise<MadeMachine>;
  create(body?: Partial<CreateFineTuningJob>): Promise<string>;
  job(id: string): Promise<Job>;
  attempt(id: string): Promise<Attempt>;
  shown(id: string): Promise<FineTuningJob>;
  messages(id: string): Promise<string[]>;
  /** The host of the job reports, and what is due is driven. */
  report(
    id: string,
    phase: ObservedWorkload['phase'],
    job?: Partial<ObservedJob>,
    workload?: Partial<ObservedWorkload>,
  ): Promise<void>;
  /** The host of the job reports, and nothing is driven. */
  reportOnly: Training['report'];
  /** The host sends events; each is a line of 100 bytes. */
  events(id: string, from: number, events: JobEvent[]): Promise<number | undefined>;
  /** The host uploads a file, and it is verified. */
  upload(id: string, what: 'result' | { step: number }, content: string, more?: UploadMore): Promise<string>;
  /** Time passes, and everything that is due is driven each ten seconds. */
  pass(seconds: number): Promise<void>;
  /** A job whose program runs on a machine of its own. */
  running(): Promise<{ id: string; supplierId: string; machineId: string }>;
  /** The program ends well. `lie` is what its host says about the content of its result. */
  end(id: string, content?: string, lie?: string): Promise<void>;
  /** What the supplier has earned, in cents. */
  earnedCents(supplierId: string): Promise<number>;
  /** What the customer has paid and what is held, in whole cents. */
  money(): Promise<{ paid: number; held: number }>;
}

interface UploadMore {
  /** What the host says about the content instead of the truth. */
  lie?: string;
  /** Drives the job after the upload. */
  drive?: () => Promise<unknown>;
}

export async function openTraining(outside: WorldOutside = {}): Promise<Training> {
  const world = await openWorld(1, { ...outside, settings: { models: tunableModels(), ...outside.settings } });
  return joinTraining(world);
}

async function joinTraining(world: World): Promise<Training> {
  const who = await world.customer(CUSTOMER_CENTS);
  return trainingIn(world, who, await addFile(world, who.orgId));
}

function trainingIn(world: World, who: WorldAccount, fileId: string): Training {
  const job = async (id: string): Promise<Job> => (await findJob(world.db.read, id)) ?? missing(id);
  const attempt = async (id: string): Promise<Attempt> =>
    (await findAttempt(world.db.read, (await job(id)).workload_id ?? '')) ?? missing(id);
  const { fineTuning } = world.rooms;
  const training: Training = {
    world,
    who,
    fileId,
    restart: async () => trainingIn(await world.restart(), who, fileId),
    another: () => joinTraining(world),
    machine: async (options) => {
      const made = await world.machine({ dollars: DOLLARS_PER_HOUR, ...options });
      await world.rooms.supply.setTrusted(made.machineId, true);
      return made;
    },
    create: async (body = {}) => {
      const whole = CreateFineTuningJob.parse({
        model: 'tiny-base',
        training_file: fileId,
        method: { type: 'lora' },
        svc: { max_budget_usd: BUDGET_USD },
        ...body,
      });
      const caller = { ...who, scopes: [] };
      const reply = await fineTuning.create({ caller, body: whole, settle: async () => undefined });
      return (reply.body as FineTuningJob).id;
    },
    job,
    attempt,
    shown: (id) => fineTuning.get(who.orgId, id),
    messages: async (id) => {
      const { data } = await fineTuning.events(who.orgId, id, { limit: 200, order: 'asc' });
      return data.map(({ message }) => message);
    },
    ...hostOf(world, attempt),
    pass: async (seconds) => {
      for (let left = seconds; left > 0; left -= 10) {
        await world.clock.advance(Math.min(left, 10) * 1_000);
        await world.drive();
      }
    },
    running: async () => {
      const machine = await training.machine();
      const id = await training.create();
      await world.drive();
      await training.report(id, 'running');
      return { id, ...machine };
    },
    end: async (id, content = 'adapter', lie = content) => {
      await training.report(id, 'finishing', { exit_code: 0 });
      await training.upload(id, 'result', content, { lie });
      const results = [{ name: 'adapter.txt', bytes: lie.length, sha256: '0'.repeat(64) }];
      await training.report(id, 'finished', { exit_code: 0, results });
    },
    earnedCents: async (supplierId) =>
      Number((await world.rooms.ledger.balance(world.db.read, payable(supplierId))).postedUcents) / Number(CENT),
    money: async () => {
      const { postedUcents, heldUcents } = await world.rooms.ledger.balance(world.db.read, wallet(who.orgId));
      return { paid: CUSTOMER_CENTS - Number(postedUcents / CENT), held: Number(heldUcents / CENT) };
    },
  };
  return training;
}

/** What the host of a job does. */
function hostOf(
  world: World,
  attempt: (id: string) => Promise<Attempt>,
): Pick<Training, 'report' | 'reportOnly' | 'events' | 'upload'> {
  const { fineTuning } = world.rooms;
  const reportOnly: Training['reportOnly'] = async (id, phase, report, more) => {
    const { id: workloadId, machine_id: machineId } = await attempt(id);
    const observed = {
      exit_code: null,
      stopped_at_limit: false,
      results: null,
      detail: null,
      skipped_lines: 0,
      ...report,
    };
    await world.rooms.workloads.observe(machineId, {
      type: 'observed',
      held: null,
      unknown_workload_ids: [],
      workloads: [{ ...NOTHING_OBSERVED, workload_id: workloadId, phase, job: observed, ...more }],
    });
  };
  return {
    reportOnly,
    report: async (...what) => {
      await reportOnly(...what);
      await world.drive();
    },
    events: async (id, from, events) => {
      const { id: workloadId, machine_id: machineId } = await attempt(id);
      const sent = events.map((event, i) => ({ end: from + (i + 1) * 100, event }));
      return fineTuning.takeEvents(machineId, workloadId, sent);
    },
    upload: async (id, what, content, { lie = content, drive = world.drive } = {}) => {
      const { id: workloadId, machine_id: machineId } = await attempt(id);
      const name = what === 'result' ? 'adapter.txt' : `step-${what.step}`;
      const file = { name, bytes: Buffer.byteLength(lie), sha256: createHash('sha256').update(lie).digest('hex') };
      const purpose: JobUrlPurpose =
        what === 'result' ? { kind: 'result', file } : { kind: 'checkpoint', step: what.step, file };
      const answer = await fineTuning.urlFor(machineId, workloadId, purpose);
      if (answer?.kind !== 'url') return answer?.kind ?? 'nothing';
      const key = new URL(answer.url).pathname.split('/').at(-1) ?? '';
      const limits = { bytesMax: 1_000, signal: new AbortController().signal };
      await world.rooms.blobs.write(key, Readable.from([Buffer.from(content)]), limits);
      const after = await fineTuning.urlFor(machineId, workloadId, purpose);
      await drive();
      return after?.kind ?? 'nothing';
    },
  };
}

/** A file with twelve examples and a thousand tokens. */
async function addFile(world: World, orgId: string): Promise<string> {
  const { blobs } = world.rooms;
  const key = blobs.newKey('files');
  const stored = await blobs.write(key, Readable.from([Buffer.from('{}\n')]), {
    bytesMax: 100,
    signal: new AbortController().signal,
  });
  const report = {
    valid: true,
    examples: 12,
    estimated_tokens: 1_000,
    problems_found: 0,
    problems: [],
    repeated_examples: 0,
  };
  const file = { id: world.core.ids.prefixed('file'), org_id: orgId, blob_key: key, filename: 'train.jsonl' };
  const row = { ...file, purpose: 'fine-tune' as const, bytes: stored.bytes, sha256: stored.sha256, report };
  await world.db.tx('test.file', (tx) => insertFile(tx, { ...row, created_ms: world.clock.now() }));
  return file.id;
}

function missing(id: string): never {
  throw new Error(`there is no ${id}`);
}
