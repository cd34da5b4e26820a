// What the operator's routes ask of the rooms, in an operator's words.
import { isoTime } from '../shared/clock.ts';
import { fail } from '../shared/errors.ts';
import type { LoopStatus } from '../shared/loop.ts';
import { centsFloor, dollarsFromUcents, dollarText, UCENTS_PER_CENT } from '../shared/money.ts';
import { creditCommands, disputeCommands } from './admin-decisions.ts';
import { instanceCommands } from './admin-instances.ts';
import type { Fields } from './admin/fields.ts';
import type { ReloadCommand } from './admin/reload-routes.ts';
import type { ReservationCommands } from './admin/reservation-routes.ts';
import type { AdminDeps } from './admin/routes.ts';
import type { SupplierCommands } from './admin/supplier-routes.ts';
import type { Metrics } from './base/http/metrics.ts';
import {
  allMachines,
  allSuppliers,
  findSupplier,
  type MachineRow,
  type SupplierRow,
  supplierOfOrg,
} from './fleet/supply/store.ts';
import { faultWords, obstacleOf } from './fleet/supply/verdict.ts';
import { funding, payable, wallet } from './money/ledger/accounts.ts';
import { TransferDiffers } from './money/ledger/store.ts';
import { balanceNow } from './money/metering/balance.ts';
import { payoutView } from './money/payouts/routes.ts';
import { payoutEntries, type PayoutEntry } from './money/ledger/suppliers.ts';
import type { Standing } from './money/payouts/payouts.ts';
import type { OperatorView } from './rental/reservations/reservations.ts';
import type { Core, Rooms } from './rooms.ts';

/** An operator looks through no more. */
const PAYOUTS_SHOWN_MAX = 1_000;

export function adminDeps(
  { db, clock }: Pick<Core, 'db' | 'clock'>,
  rooms: Rooms,
  process: { loops(): LoopStatus[]; metrics: Metrics } & ReloadCommand,
): AdminDeps {
  return {
    accounts: rooms.accounts,
    balance: balanceCommands({ db, clock }, rooms),
    machines: {
      list: async () => (await allMachines(db.read)).map(machineFields),
      approve: async (id) => machineFields(await rooms.supply.approve(id)),
      suspend: async (id) => machineFields(await rooms.supply.suspend(id)),
      unify: async (id) => machineFields(await rooms.supply.setCopied(id, false)),
      removeWorkload: async (id, workloadId) => {
        await rooms.workloads.removeUnknown(id, workloadId);
        rooms.link.push(id);
        return { machine_id: id, workload_id: workloadId, desired: 'removed' };
      },
    },
    suppliers: supplierCommands(db, rooms),
    instances: instanceCommands({ db, clock }, rooms),
    disputes: disputeCommands(rooms),
    credits: creditCommands(rooms),
    reservations: reservationCommands(rooms),
    ledger: rooms.books,
    ...process,
  };
}

function balanceCommands({ db, clock }: Pick<Core, 'db' | 'clock'>, rooms: Rooms): AdminDeps['balance'] {
  const show = async (orgId: string): Promise<Fields> => {
    await assertOrg(rooms, orgId);
    const now = { ledger: rooms.ledger, nowMs: clock.now() };
    const balance = await db.tx('admin.balance', (tx) => balanceNow(tx, orgId, now));
    const supplier = await supplierOfOrg(db.read, orgId);
    const owed = supplier === undefined ? 0n : (await rooms.ledger.balance(db.read, payable(supplier.id))).postedUcents;
    return {
      org_id: orgId,
      balance_cents: Number(centsFloor(balance.postedUcents)),
      held_cents: Number(centsFloor(balance.heldUcents)),
      available_cents: Number(centsFloor(balance.availableUcents)),
      balance: dollarText(balance.postedUcents),
      supplier_unpaid: dollarText(owed),
    };
  };
  return {
    show,
    add: async (orgId, cents, reference) => {
      await assertOrg(rooms, orgId);
      const id = `funding:${orgId}:${reference}`;
      const transfer = {
        id,
        debit: funding,
        credit: wallet(orgId),
        amountUcents: BigInt(cents) * UCENTS_PER_CENT,
        kind: 'funding.manual',
        subjectId: orgId,
        effectiveMs: clock.now(),
      };
      await db
        .tx('admin.balance_add', (tx) => rooms.ledger.post(tx, id, [transfer]))
        .catch((error: unknown) => {
          if (!(error instanceof TransferDiffers)) throw error;
          fail(
            'conflict',
            `Another amount was added under the reference ${reference}. Nothing was changed: name a new one.`,
          );
        });
      return show(orgId);
    },
  };
}

function supplierCommands(db: Core['db'], rooms: Rooms): SupplierCommands {
  const show = async (row: SupplierRow): Promise<Fields> => ({
    supplier_id: row.id,
    org_id: row.org_id,
    status: row.status,
    ...standingFields(await rooms.payouts.standing(db.read, row.id)),
    created_at: isoTime(row.created_ms),
  });
  return {
    list: async () => Promise.all((await allSuppliers(db.read)).map(show)),
    suspend: async (id) => show(await rooms.supply.suspendSupplier(id)),
    resume: async (id) => show(await rooms.supply.resumeSupplier(id)),
    pay: async (id, cents, reference) => {
      if ((await findSupplier(db.read, id)) === undefined) fail('not_found', `There is no supplier ${id}.`);
      const payout = await rooms.payouts.pay({ supplierId: id, cents, reference });
      return { ...payoutFields(payout), ...standingFields(await rooms.payouts.standing(db.read, id)) };
    },
    payouts: async (id) => (await payoutEntries(db.read, id, undefined, PAYOUTS_SHOWN_MAX)).map(payoutFields),
  };
}

function standingFields({ accruedCents, unpaidCents, payableCents }: Standing): Fields {
  return {
    accrued_cents: Number(accruedCents),
    unpaid_cents: Number(unpaidCents),
    payable_cents: Number(payableCents),
  };
}

function payoutFields(row: PayoutEntry): Fields {
  return { supplier_id: row.subject_id, ...payoutView(row) };
}

function reservationCommands(rooms: Rooms): ReservationCommands {
  const { reservations } = rooms;
  return {
    create: async (request) => {
      await assertOrg(rooms, request.org_id);
      return reservationFields(await reservations.create(request));
    },
    list: async () => (await reservations.list()).map(reservationFields),
    show: async (id) => reservationFields(await reservations.show(id)),
    suspend: async (id) => reservationFields(await reservations.suspend(id)),
    resume: async (id) => reservationFields(await reservations.resume(id)),
    cancel: async (id) => reservationFields(await reservations.cancel(id)),
    reassign: async (id) => reservationFields(await reservations.reassign(id)),
    extend: async (id, untilMs) => reservationFields(await reservations.extend(id, untilMs)),
  };
}

function reservationFields({ contract, slots, awaited, claimMs, outlook }: OperatorView): Fields {
  const sum = (numberOf: (machine: OperatorView['slots'][number]) => number): number =>
    slots.reduce((total, machine) => total + numberOf(machine), 0);
  const entries = contract.commitment.map((entry) => `${entry.gpu_count} ${entry.gpu_type} in ${entry.region}`);
  return {
    reservation_id: contract.id,
    org_id: contract.org_id,
    title: contract.title,
    status: contract.status,
    starts_at: isoTime(contract.starts_ms),
    ends_at: isoTime(contract.ends_ms),
    renewal: contract.renewal,
    commitment: entries.join(', '),
    // From then on its GPUs are not on the market: those that are free at once, those in use as they come free.
    set_aside_at: isoTime(claimMs),
    set_aside: placesText(slots.map((machine) => ({ ...machine, count: machine.slots }))),
    missing: awaited,
    // Before `set_aside_at`: what the contract would find if all that is in use stayed in use.
    free_at_start:
      outlook === null
        ? null
        : placesText(
            outlook.free.map(({ machineId: machine_id, gpuType: gpu_type, count }) => ({
              machine_id,
              gpu_type,
              count,
            })),
          ),
    missing_at_start: outlook?.missing ?? null,
    machines: slots.length,
    slots: sum((machine) => machine.slots),
    in_use: sum((machine) => machine.in_use),
    free: sum((machine) => machine.free),
    // The host is offline, delisted or suspended: `reassign` replaces those that are not in use.
    on_unlisted_hosts: sum((machine) => (machine.listed ? 0 : machine.slots)),
  };
}

function placesText(places: readonly { machine_id: string; gpu_type: string; count: number }[]): string {
  return places.map((place) => `${place.count} ${place.gpu_type} on ${place.machine_id}`).join(', ') || 'none';
}

async function assertOrg(rooms: Rooms, orgId: string): Promise<void> {
  const known = (await rooms.accounts.listOrgs()).some((org) => org.id === orgId);
  if (!known) fail('not_found', `There is no organisation ${orgId}.`);
}

function machineFields(row: MachineRow): Fields {
  return {
    machine_id: row.id,
    supplier_id: row.supplier_id,
    status: row.status,
    approved: row.approved,
    off_market_because: obstacleOf(row) ?? null,
    verification_status: row.verification_status,
    verification_detail: row.verification_detail,
    online: row.online,
    gpus: row.inventory?.gpus.length ?? null,
    gpu_name: row.inventory?.gpus[0]?.name ?? null,
    gpu_error: row.inventory?.gpu_error ?? null,
    gpu_faults: faultWords(row.inventory?.gpu_faults ?? []),
    engine: row.inventory?.engine_version ?? null,
    network_fence: row.inventory?.network_fence ?? null,
    fence_error: row.inventory?.fence_error ?? null,
    region: row.region,
    price_per_hour: dollarsFromUcents(row.price_ucents_per_hour),
    unknown_workloads: row.unknown_workloads?.join(', ') ?? 'not reported yet',
    copied_since: row.copied_ms === null ? null : isoTime(row.copied_ms),
    last_heartbeat_at: row.last_heartbeat_ms === null ? null : isoTime(row.last_heartbeat_ms),
  };
}
