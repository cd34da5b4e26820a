// Everything that moves money, in random orders and amounts: after each step, every proof of the books holds.
import fc from 'fast-check';
import { expect, inject, test } from 'vitest';
import { z } from 'zod';
import { text } from '../../../control-plane/base/db/columns.ts';
import { sql } from '../../../control-plane/base/db/db.ts';
import { type Deposit, wake } from '../../../control-plane/money/deposits/store.ts';
import { paidOfSubjects } from '../../../control-plane/money/ledger/wallets.ts';
import { pageOfPayouts } from '../../../control-plane/money/payouts/store.ts';
import { freeOutcome, closeReceipt, openReceipt } from '../../../control-plane/models/gateway/states.ts';
import { ServiceError } from '../../../shared/errors.ts';
import { dollarText, ucentsFromDollars } from '../../../shared/money.ts';
import { drivePaid, noteRead, offlineDeposits, payDeposit } from '../../kit/deposits.ts';
import { openOperator, type Operator } from '../../kit/operator.ts';
import { nameDestination } from '../../kit/payees.ts';
import { newReceipt } from '../../kit/payers.ts';
import type { World } from '../../kit/world.ts';
import { openTraining, type Training } from '../models/training-world.ts';

const HOUR_MS = 3_600_000;
const DAY_MS = 24 * HOUR_MS;
const IS_SOAK = process.env['SOAK'] === '1';
const IS_POSTGRES = inject('postgresUrl') !== undefined;
/** A history on PostgreSQL takes about four seconds. */
const RUNS_POSTGRES = IS_SOAK ? 40 : 2;
/** The 40 histories of the fixed seed post everything, and so do 200 others. */
const RUNS = IS_POSTGRES ? RUNS_POSTGRES : IS_SOAK ? 200 : 40;
const NEVER = new AbortController().signal;
const GPUS = 8;

/** What a history acts on. */
interface Stage {
  training: Training;
  ask: Operator['ask'];
  suppliers: { supplierId: string; orgId: string }[];
  running: string[];
  ended: string[];
  receipts: string[];
  jobs: string[];
  deposits: Deposit[];
  /** The number of the step. */
  n: number;
}

/** The numbers of one step. Each action takes those that it needs. */
interface Chance {
  which: number;
  dollars: number;
  isOne: boolean;
  ms: number;
}

type Action = (stage: Stage, chance: Chance) => Promise<unknown>;

const MONEY_FROM_CHAINS: Record<string, Action> = {
  deposit: async ({ training: { world, who }, deposits }, { dollars }) => {
    const request = { asset: 'usdc', chain: 'ethereum', amount_usd_cents: Math.ceil(dollars * 100) } as const;
    deposits.push(
      await world.db.tx('test.deposit', async (tx) => {
        await tx.lock('org', who.orgId);
        return world.rooms.deposits.create(tx, who.orgId, request);
      }),
    );
  },
  /** Tokens come: too few, enough, too many, of another kind, or too late. */
  pay: async ({ training: { world }, deposits }, { which, dollars, isOne, ms }) => {
    const deposit = pick(deposits, which);
    if (deposit === undefined) return;
    const units = isOne ? deposit.due_units : BigInt(Math.ceil(dollars * 1e6)) + 3n;
    const asset = which % 5 === 0 ? 'usdt' : 'usdc';
    await payDeposit(world.core, deposit, { units, asset, ms: isOne ? deposit.created_ms : deposit.created_ms + ms });
    await drivePaid(world.core, world.rooms, deposit.id);
  },
  decide: async ({ ask, deposits }, { which, isOne }) => {
    const path = `/admin/deposits/${pick(deposits, which)?.id ?? 'none'}`;
    if (isOne || which % 2 === 0) return ask('POST', `${path}/${isOne ? 'credit' : 'reject'}`, { reason: 'r' });
    const transfers = (await ask('GET', path))['transfers'] as { tx_hash: string }[];
    return ask('POST', `${path}/returned`, { tx_hash: transfers.at(-1)?.tx_hash ?? 'none', reason: 'r' });
  },
};

const MONEY_SPENT: Record<string, Action> = {
  rent: async ({ training: { world, who }, suppliers, running, n }, { which, dollars }) => {
    const { supplierId = '' } = pick(suppliers, which) ?? {};
    const gpus = { gpuType: 'H100_SXM', gpuCount: 1, supplierBps: 8_500, supplierId, machineId: 'm' };
    const rental = { ...gpus, subjectId: `i-${n}`, orgId: who.orgId, startedMs: world.clock.now() };
    await world.db.tx('test.rent', (tx) =>
      world.rooms.metering.openSegment(tx, { ...rental, rateUcentsPerHour: ucentsOf(dollars) }),
    );
    running.push(rental.subjectId);
  },
  end: async (stage, { which, isOne, ms }) => {
    const [id] = stage.running.splice(which % Math.max(1, stage.running.length), 1);
    if (id === undefined) return;
    await cut(stage, id, isOne ? 0 : ms);
    stage.ended.push(id);
  },
  late_verdict: async (stage, { which, ms }) => cut(stage, pick(stage.ended, which) ?? 'none', ms),
  own_outage: async ({ training: { world } }, { ms }) => {
    const untilMs = world.clock.now();
    const outage = { fromMs: untilMs - ms, untilMs, evidence: 'we were away' };
    return world.rooms.metering.creditOwnOutage(outage);
  },
  ask: async ({ training: { world, who }, receipts, n }, { dollars, isOne }) => {
    const nowMs = world.clock.now();
    const receipt = newReceipt(who, { id: `rcp_${n}`, held_ucents: ucentsOf(dollars), opened_ms: nowMs });
    if ((await world.db.hot(openReceipt(receipt))) !== 'open') return;
    const outcome = { ...freeOutcome('completed'), charged_ucents: isOne ? receipt.held_ucents : 3n };
    await world.db.hot(closeReceipt(receipt, outcome, { nowMs, attempts: [] }));
    receipts.push(receipt.id);
  },
  train: async ({ training, jobs }, { isOne }) => {
    const id = await training.create({ svc: { max_budget_usd: isOne ? 10 : 60 } });
    jobs.push(id);
    await training.world.drive();
    if ((await training.job(id)).workload_id !== null) await training.report(id, 'running');
  },
  checkpoint: async (stage, { which }) => {
    const id = await runningJob(stage, which);
    if (id !== undefined) await stage.training.upload(id, { step: stage.n }, 'state');
  },
  trained: async (stage, { which, isOne }) => {
    const id = await runningJob(stage, which);
    if (id === undefined) return;
    await (isOne ? stage.training.end(id) : stage.training.report(id, 'failed', { exit_code: 1 }));
  },
  untrain: async ({ training: { world, who }, jobs }, { which }) =>
    world.rooms.fineTuning.cancel(who.orgId, pick(jobs, which) ?? 'none', async () => undefined),
};

const MONEY_CORRECTED: Record<string, Action> = {
  /** All that is left, some of it, or a microcent more than there is. */
  refund: async ({ ask, training: { world }, ended, receipts, jobs, n }, { which, dollars, isOne }) => {
    const subject = pick([...ended, ...receipts, ...jobs], which) ?? 'none';
    const paidUcents = (await paidOfSubjects(world.db.read, [subject])).get(subject) ?? 0n;
    const amount = [undefined, dollars.toFixed(8), dollarText(paidUcents / 2n), dollarText(paidUcents + 1n)][n % 4];
    const body = { subject_id: subject, from_platform: isOne, ...(amount && { amount }), ...named(n) };
    return ask('POST', '/admin/corrections/refunds', body);
  },
  credit: async ({ ask, training, n }, { dollars }) =>
    ask('POST', '/admin/corrections/credits', { org_id: training.who.orgId, amount: dollars.toFixed(8), ...named(n) }),
  adjust: async ({ ask, training, n }, { dollars, isOne, which }) => {
    const way = isOne ? { direction: 'up' } : { direction: 'down', allow_debt: which % 2 === 0 };
    const body = { org_id: training.who.orgId, amount: dollars.toFixed(8), ...way, ...named(n) };
    return ask('POST', '/admin/corrections/adjustments', body);
  },
  dispute: async ({ training: { world }, running, ended }, { which, isOne }) => {
    const { disputes } = world.rooms.payouts;
    const instanceId = pick([...running, ...ended], which) ?? 'none';
    const { id } = await disputes.open({ instanceId, sinceMs: null, reason: 'slow' });
    const resolve = (refund: boolean): Promise<unknown> => disputes.resolve(id, { refund, note: 'n' });
    // A refund is refused if the operator has refunded the rental already.
    return resolve(isOne).catch(() => resolve(false));
  },
};

const MONEY_PAID_OUT: Record<string, Action> = {
  due: async ({ training }) => training.world.rooms.payouts.makeDue(NEVER),
  export: async ({ training, n }) => training.world.rooms.payouts.exportBatch(`b${n}`),
  sent: async (stage) => stage.training.world.rooms.payouts.sent(await inFlight(stage), `tx${stage.n}`),
  failed: async (stage) => stage.training.world.rooms.payouts.failed(await inFlight(stage), 'no gas'),
  by_hand: async ({ training, suppliers, n }, { which, isOne }) => {
    const { supplierId = '' } = pick(suppliers, which) ?? {};
    return training.world.rooms.payouts.pay({ supplierId, cents: isOne ? null : 1 + which, reference: `p${n}` });
  },
};

const ACTIONS: Record<string, Action> = {
  ...MONEY_FROM_CHAINS,
  ...MONEY_SPENT,
  ...MONEY_CORRECTED,
  ...MONEY_PAID_OUT,
  wait: async ({ training }, { ms }) => training.world.clock.advance(ms),
};

/** Several of these are needed before others do anything. */
const FREQUENT = [
  'wait',
  'wait',
  'wait',
  'rent',
  'train',
  'trained',
  'checkpoint',
  'refund',
  'refund',
  'refund',
  'deposit',
  'pay',
  'pay',
  'pay',
  'decide',
  'decide',
  'due',
  'due',
  'export',
  'export',
  'failed',
  'failed',
];

const anyStep = fc.record({
  do: fc.constantFrom(...Object.keys(ACTIONS), ...FREQUENT),
  which: fc.nat({ max: 29 }),
  dollars: fc.constantFrom(0.00000003, 0.37, 5, 19.99, 120),
  isOne: fc.boolean(),
  ms: fc.constantFrom(7, 40_000, HOUR_MS / 3, 2 * HOUR_MS, DAY_MS + 1),
});

/** What all histories together must have posted. */
const POSTED = [
  'deposit.credit',
  'deposit.rounding',
  'deposit.suspense',
  'deposit.release',
  'deposit.returned',
  'rental.charge',
  'rental.refund_charge',
  'inference.charge',
  'finetune.charge',
  'finetune.supplier',
  'finetune.fee',
  'correction.refund_supplier',
  'correction.refund_fee',
  'correction.credit',
  'correction.up',
  'correction.down',
  'payout',
  'payout.paid',
  'payout.failed',
  // A rental, a request to a model, and a job.
  'refund of i-',
  'refund of rc',
  'refund of ft',
];

test('after each step of a random history, all proofs of the books hold', async () => {
  const posted = new Set<string>();
  await fc.assert(
    fc.asyncProperty(fc.array(anyStep, { minLength: 40, maxLength: 60, size: 'max' }), async (steps) => {
      const stage = await openStage();
      const { world } = stage.training;
      for (const { do: name, ...chance } of steps) {
        stage.n += 1;
        await ACTIONS[name]?.(stage, chance).catch(assertRefusal);
        await settle(stage);
        await world.verify();
      }
      for (const what of await postedIn(world)) posted.add(what);
      await world.close();
    }),
    IS_SOAK ? { numRuns: RUNS } : { seed: 11, numRuns: RUNS },
  );
  // The histories on PostgreSQL are few, and may lack some kinds.
  expect(IS_POSTGRES ? POSTED : [...posted]).toEqual(expect.arrayContaining(POSTED));
});

/** The kinds of the transfers, and of what was refunded. */
async function postedIn({ db }: World): Promise<string[]> {
  const rows = await db.read.all(
    z.object({ what: text }),
    sql`select kind as what from transfers
        union select 'refund of ' || substr(subject_id, 1, 2) as what from corrections where kind = 'refund'`,
  );
  return rows.map(({ what }) => what);
}

async function openStage(): Promise<Stage> {
  const deposits = { ...offlineDeposits(['ethereum']), centsMin: 1, openPerOrgMax: 1_000 };
  const training = await openTraining({ settings: { deposits } });
  const { world } = training;
  const suppliers = [await training.machine({ gpus: GPUS }), await training.machine({ gpus: GPUS })];
  for (const supplier of suppliers) await nameDestination(world, supplier);
  await noteRead(world, 'ethereum');
  const { ask } = openOperator(world);
  return { training, ask, suppliers, running: [], ended: [], receipts: [], jobs: [], deposits: [], n: 0 };
}

/** What loops and watchers do all the time: the chain goes on, and what is due is done. */
async function settle({ training: { world }, deposits }: Stage): Promise<void> {
  const { db, clock, core, rooms } = world;
  const nowMs = clock.now();
  await db.tx('test.chain', async (tx) => {
    await tx.run(sql`update deposit_chains set head_ms = ${nowMs}, final_ms = ${nowMs}`);
    await wake(tx, { chain: 'ethereum', finalMs: nowMs, touched: [] }, nowMs);
  });
  for (const { id } of deposits) await drivePaid(core, rooms, id);
  await world.drive();
  await rooms.metering.tick(NEVER);
}

/** A refusal is fine: much of what chance asks for is impossible. */
function assertRefusal(error: unknown): void {
  const code = error instanceof ServiceError ? error.code : (error as { code?: unknown }).code;
  if (['conflict', 'not_found', 'validation_failed', 'insufficient_balance'].includes(String(code))) return;
  throw error;
}

function pick<T>(all: readonly T[], which: number): T | undefined {
  return all[which % Math.max(1, all.length)];
}

function ucentsOf(dollars: number): bigint {
  return ucentsFromDollars(dollars) ?? 0n;
}

function named(n: number): { reason: string; reference: string } {
  return { reason: 'r', reference: `r${n}` };
}

async function cut({ training: { world, who } }: Stage, id: string, backMs: number): Promise<void> {
  await world.db.tx('test.cut', async (tx) => {
    await tx.lock('org', who.orgId);
    await world.rooms.metering.closeSegment(tx, id, world.clock.now() - backMs, 'dead');
    await world.rooms.metering.releaseHold(tx, id, who.orgId);
  });
}

async function runningJob({ training, jobs }: Stage, which: number): Promise<string | undefined> {
  const states = await Promise.all(jobs.map((id) => training.job(id)));
  return pick(
    states.filter(({ status }) => status === 'running').map(({ id }) => id),
    which,
  );
}

async function inFlight({ training: { world } }: Stage): Promise<string> {
  const page = await pageOfPayouts(world.db.read, { supplierId: undefined, state: 'in_flight' }, { count: 1 });
  return page[0]?.id ?? 'none';
}
