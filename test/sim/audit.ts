// The second book-keeper: compares what the product has charged, credited and paid with what the world says it should have.
import { z } from 'zod';
import { text, ucents } from '../../control-plane/base/db/columns.ts';
import { sql } from '../../control-plane/base/db/db.ts';
import { type Bucket } from '../../control-plane/money/metering/buckets.ts';
import { usageRows } from '../../control-plane/money/metering/usage.ts';
import type { World } from '../kit/world.ts';
import { boundsOf, type Seen } from './bounds.ts';
import type { Fleet } from './fleet.ts';
import { overlap, type Span, without } from './spans.ts';
import { readRentals, type Rental } from './rentals.ts';

/** The part of a price that suppliers get: the platform's fee is 20 %. */
const SUPPLIER_PERCENT = 80n;
const HOUR_MS = 3_600_000n;
/** The largest charge beyond an empty wallet: two ticks of 30 s, and a short own outage. */
const UNCOVERED_MS_MAX = 2 * 30_000 + 60_000;

/** A sentence for each amount that differs. All instances must have ended. */
export async function audit(fleet: Fleet): Promise<string[]> {
  const world = fleet.plane.world();
  const rentals = await readRentals(world);
  const entries = await readEntries(world);
  const usage = await readUsage(world, new Set(rentals.map(({ orgId }) => orgId)));
  return [
    ...usage.broken,
    ...rentals.flatMap((rental) => brokenRental(rental, { fleet, rentals, entries, usage: usage.cost })),
    ...strays(entries, rentals, fleet),
    ...(await brokenWallets(fleet, entries)),
    ...(await brokenEarnings(world, rentals, entries)),
  ];
}

interface Books {
  fleet: Fleet;
  rentals: readonly Rental[];
  entries: Entries;
  usage: ReadonlyMap<string, bigint>;
}

function brokenRental(rental: Rental, { fleet, rentals, entries, usage }: Books): string[] {
  const { id, ucentsPerHour: rate } = rental;
  const bounds = boundsOf(rental, seenOf(rental, fleet, rentals));
  const of = (kind: string): bigint => entries.get(id)?.get(kind) ?? 0n;
  const charged = of('customer_wallet') + of('bad_debt');
  const pieces = BigInt(rental.running.length + fleet.witness.absences().length);
  const supplierPart = (ucentsOfTime: bigint): bigint => (ucentsOfTime * SUPPLIER_PERCENT) / 100n;
  const rules: [boolean, string][] = [
    [
      isWithin(charged, bounds.chargedMs, rate, pieces),
      `charged ${charged}, which is ${timeOf(charged, rate)} ms; ${bounds.chargedMs.join(' to ')} were to be charged`,
    ],
    [usage.get(id) === charged || charged === 0n, `charged ${charged}, and its usage says ${usage.get(id)}`],
    [-of('supplier_payable') - of('platform_revenue') === charged, `charged ${charged}, which is not what others got`],
    [
      isWithin(-of('supplier_payable') - supplierPart(charged), bounds.ownOutageMs, (rate * 4n) / 5n, pieces),
      `the supplier has ${-of('supplier_payable')}, of the charge it is ${supplierPart(charged)}, for own outages of ${bounds.ownOutageMs.join(' to ')} ms`,
    ],
    [of('bad_debt') <= costOf(UNCOVERED_MS_MAX, rate), `${of('bad_debt')} could not be charged any more`],
    [
      placedRates(rental, fleet).includes(rate),
      `costs ${rate}, and its host asked for ${placedRates(rental, fleet).join(' or ')}`,
    ],
  ];
  return [...bounds.broken, ...rules.flatMap(([holds, what]) => (holds ? [] : [`${id}: ${what}`]))];
}

function seenOf(rental: Rental, { witness, clock }: Fleet, rentals: readonly Rental[]): Seen {
  return {
    run: witness.holders(rental.workloadId),
    goodEndpoint: witness.goodEndpoints(rental.workloadId),
    container: witness.containers(rental.workloadId),
    copies: witness.copies(rental.machineId),
    planeUp: without(witness.planeUp(), witness.absences()),
    absences: witness.absences(),
    failingWith: (outage) => machinesFailing(outage, rentals, witness),
    askedToEndMs: witness.ends.get(rental.id) ?? Infinity,
    limitMs: witness.launches.get(rental.id)?.limitMs ?? Infinity,
    nowMs: clock.now(),
  };
}

function machinesFailing(outage: Span, rentals: readonly Rental[], witness: Fleet['witness']): number {
  const failing = rentals.filter((rental) => {
    const rented = overlap([outage], [[rental.readyMs, rental.endMs]]);
    return without(rented, witness.holders(rental.workloadId)).length > 0;
  });
  return new Set(failing.map(({ machineId }) => machineId)).size;
}

/** The price of the GPUs on their machine during the launch, and no more than at the first placement. */
function placedRates(rental: Rental, { witness }: Fleet): bigint[] {
  const launch = witness.launches.get(rental.id);
  if (launch === undefined) return [];
  const prices = witness.prices.get(rental.machineId) ?? [];
  const until = prices.filter(({ sinceMs }) => sinceMs <= rental.readyMs);
  const current = until.filter((_price, i) => (until[i + 1]?.sinceMs ?? Infinity) >= launch.atMs);
  return current
    .map(({ ucentsPerHour }) => ucentsPerHour * BigInt(launch.gpuCount))
    .filter((rate) => rate <= (launch.placedUcentsPerHour ?? rate));
}

/** Amounts taken less amounts returned, for each instance and kind of account. */
type Entries = Map<string, Map<string, bigint>>;

const EntryRow = z.object({ subject_id: text, account_id: text, taken_ucents: ucents });

async function readEntries({ db }: World): Promise<Entries> {
  const rows = await db.read.all(
    EntryRow,
    sql`select subject_id, account_id, cast(sum(ucents) as bigint) as taken_ucents from (
          select subject_id, debit_account_id as account_id, amount_ucents as ucents from transfers
          union all
          select subject_id, credit_account_id as account_id, -amount_ucents as ucents from transfers
        ) as legs group by subject_id, account_id order by subject_id, account_id`,
  );
  const entries: Entries = new Map();
  for (const { subject_id: id, account_id: account, taken_ucents: taken } of rows) {
    const kind = account.split(':')[0] ?? '';
    const ofSubject = entries.get(id) ?? new Map<string, bigint>();
    entries.set(id, ofSubject.set(kind, (ofSubject.get(kind) ?? 0n) + taken));
  }
  return entries;
}

/** Only instances that have run, and customers, may move money. */
function strays(entries: Entries, rentals: readonly Rental[], { customers }: Fleet): string[] {
  const known = new Set([...rentals.map(({ id }) => id), ...customers.map(({ orgId }) => orgId)]);
  return [...entries.keys()].filter((id) => !known.has(id)).map((id) => `${id} has moved money and never ran`);
}

async function readUsage(
  { db, clock }: World,
  orgIds: ReadonlySet<string>,
): Promise<{ cost: Map<string, bigint>; broken: string[] }> {
  const cost = new Map<string, bigint>();
  const broken: string[] = [];
  const nowMs = clock.now();
  const startMs = nowMs - clock.monotonicMs();
  for (const orgId of orgIds) {
    const rowsOf = (bucket: Bucket, groupBy: 'instance_id' | 'gpu_type', window: Span) =>
      usageRows(
        { db, clock },
        {
          orgId,
          bucket,
          groupBy,
          startMs: window[0],
          endMs: window[1],
          nowMs,
          after: undefined,
          limit: 1e6,
        },
      );
    const hours = await rowsOf('hour', 'instance_id', [startMs, nowMs]);
    for (const row of hours) cost.set(row.key, (cost.get(row.key) ?? 0n) + row.costUcents);
    const middleMs = Math.floor((startMs + nowMs) / 2);
    const halves = [
      ...(await rowsOf('week', 'gpu_type', [startMs, middleMs])),
      ...(await rowsOf('day', 'gpu_type', [middleMs, nowMs])),
    ];
    const [byHour, byHalf] = [hours, halves].map((rows) => rows.reduce((sum, row) => sum + row.costUcents, 0n));
    if (byHour !== byHalf) broken.push(`usage of ${orgId} is ${byHour} by hours, and ${byHalf} by weeks and days`);
  }
  return { cost, broken };
}

const AccountRow = z.object({ owner_id: text, kind: text, has_ucents: ucents, held_ucents: ucents });

async function brokenWallets({ plane, customers }: Fleet, entries: Entries): Promise<string[]> {
  const world = plane.world();
  const rows = await world.db.read.all(
    AccountRow,
    sql`select owner_id, kind, credits_ucents - debits_ucents as has_ucents, held_ucents from ledger_accounts
        where kind = 'customer_wallet'`,
  );
  return rows.flatMap(({ owner_id: orgId, has_ucents: has, held_ucents: held }) => {
    const funded = customers.find((one) => one.orgId === orgId)?.fundedUcents ?? 0n;
    const broken: string[] = [];
    if (has < 0n) broken.push(`the wallet of ${orgId} is at ${has}`);
    if (held > 0n) broken.push(`the wallet of ${orgId} sets ${held} aside for nothing`);
    if (-(entries.get(orgId)?.get('customer_wallet') ?? 0n) !== funded)
      broken.push(`the wallet of ${orgId} was not funded with ${funded}`);
    return broken;
  });
}

async function brokenEarnings({ rooms }: World, rentals: readonly Rental[], entries: Entries): Promise<string[]> {
  const broken: string[] = [];
  for (const [supplierId, ofSupplier] of Map.groupBy(rentals, (rental) => rental.supplierId)) {
    const earned = ofSupplier.reduce((sum, { id }) => sum - (entries.get(id)?.get('supplier_payable') ?? 0n), 0n);
    const page = await rooms.payouts.earnings(supplierId, { from: undefined, limit: 100_000 });
    const shown = page.earnings.reduce((sum, { entry }) => sum + entry.amount_ucents, 0n);
    const cents = page.earnings.reduce((sum, { amountCents }) => sum + amountCents, 0n);
    if (shown !== earned) broken.push(`supplier ${supplierId} has earned ${earned} and is shown ${shown}`);
    if (cents !== page.accruedCents)
      broken.push(`supplier ${supplierId} has ${page.accruedCents} cents, in entries ${cents}`);
  }
  return broken;
}

function costOf(ms: number, ucentsPerHour: bigint): bigint {
  return (BigInt(ms) * ucentsPerHour) / HOUR_MS;
}

function timeOf(amountUcents: bigint, ucentsPerHour: bigint): bigint {
  return (amountUcents * HOUR_MS) / ucentsPerHour;
}

/** Each piece of time is rounded down once. */
function isWithin(amount: bigint, [leastMs, mostMs]: readonly [number, number], rate: bigint, pieces: bigint): boolean {
  return costOf(leastMs, rate) - pieces <= amount && amount <= costOf(mostMs, rate) + pieces;
}
