// Rentals as an operator sees them: the charges of each rental, and the evidence for the charges from all rooms.
import { type Clock, isoTime } from '../../shared/clock.ts';
import { fail } from '../../shared/errors.ts';
import { dollarsFromUcents, dollarText } from '../../shared/money.ts';
import type { Fields } from '../base/http/operator.ts';
import { type Db, type Query } from '../base/db/db.ts';
import type { PageStart } from '../base/http/cursors.ts';
import type { Events } from '../base/events/events.ts';
import { findWorkload } from '../fleet/workloads/store.ts';
import { freeTimesOf, heldOf } from '../money/credits/store.ts';
import { explainedTransfers } from '../money/ledger/store.ts';
import { costUcents } from '../money/metering/posting.ts';
import { freeUntilMs } from '../money/bill/instance-bill.ts';
import { type Segment, segmentsOf } from '../money/metering/store.ts';
import { disputesOf } from '../money/payouts/disputes.ts';
import { findProbe } from '../rental/outages/store.ts';
import { findInstances, type InstanceFilter } from '../rental/instances/search.ts';
import { findRental, type RentalRow } from '../rental/instances/store.ts';

/** Limit of the notes of one kind in one answer, because an operator reads no more. */
const NOTES_SHOWN_MAX = 1_000;

export interface InstanceEvidenceDeps {
  db: Db;
  clock: Clock;
  events: Events;
}

export interface InstanceEvidence {
  /** A page, newest first, with the bill of each; without a status, only those that have not ended. */
  list(filter: InstanceFilter, start: PageStart): Promise<{ row: RentalRow; fields: Fields }[]>;
  /** @throws ServiceError `not_found` */
  show(id: string): Promise<Fields>;
  /** The events and decisions that determined the bill, oldest first; the newest thousand of each kind. @throws ServiceError `not_found` */
  why(id: string): Promise<Fields[]>;
  /** A row with its cost until now. */
  bill(row: RentalRow): Promise<Fields>;
}

export function openInstanceEvidence({ db, clock, events }: InstanceEvidenceDeps): InstanceEvidence {
  const read = db.read;
  const withBills = async (rows: RentalRow[]): Promise<{ row: RentalRow; fields: Fields }[]> => {
    const ids = rows.map((row) => row.id);
    const segments = Map.groupBy(await segmentsOf(read, ids), (segment) => segment.subject_id);
    return rows.map((row) => {
      return { row, fields: { ...rowFields(row), ...billFields(segments.get(row.id) ?? [], clock.now()) } };
    });
  };
  const bill = async (row: RentalRow): Promise<Fields> => (await withBills([row]))[0]?.fields ?? {};
  const found = async (id: string): Promise<RentalRow> =>
    (await findRental(read, id)) ?? fail('not_found', `There is no instance ${id}.`);
  return {
    list: async (filter, start) => withBills(await findInstances(read, filter, start)),
    show: async (id) => {
      const row = await found(id);
      return { ...(await bill(row)), ...(await detailFields(read, row)) };
    },
    why: async (id) => {
      await found(id);
      const segments = await segmentsOf(read, [id]);
      const parts = await Promise.all([
        eventNotes(read, id, events),
        creditNotes(read, id, segments),
        ledgerNotes(read, id),
        probeNotes(read, id, clock.now()),
      ]);
      return [chargeNotes(segments, clock.now()), ...parts].flatMap(newest).toSorted(byTime).map(noteFields);
    },
    bill,
  };
}

function rowFields(row: RentalRow): Fields {
  return {
    instance_id: row.id,
    org_id: row.org_id,
    status: row.status,
    machine_id: row.machine_id,
    supplier_id: row.supplier_id,
    gpus: `${row.gpu_count} ${row.gpu_type}`,
    tier: row.tier,
    price_per_hour: dollarsFromUcents(row.price_ucents_per_hour),
    created_at: isoTime(row.created_ms),
    ready_at: timeOf(row.ready_ms),
    ended_at: timeOf(row.terminated_ms),
  };
}

/** Time and cost until now, including cost that is not posted to the ledger yet. */
function billFields(segments: readonly Segment[], nowMs: number): Fields {
  const spans = segments.map((segment) => ({ segment, untilMs: segment.ended_ms ?? nowMs }));
  const ms = spans.reduce((sum, { segment, untilMs }) => sum + Math.max(0, untilMs - segment.started_ms), 0);
  const cost = spans.reduce((sum, { segment, untilMs }) => sum + costUcents(segment, untilMs), 0n);
  return { billed_seconds: Math.floor(ms / 1000), cost: dollarText(cost) };
}

async function detailFields(query: Query, row: RentalRow): Promise<Fields> {
  const workload = row.workload_id === null ? undefined : await findWorkload(query, row.workload_id);
  return {
    name: row.name,
    status_reason: row.status_reason,
    image: row.launch?.image ?? null,
    region: row.region,
    reservation_id: row.reservation_id,
    tried_machine_ids: row.tried_machine_ids.join(', '),
    workload_id: row.workload_id,
    container: workload?.observed?.phase ?? null,
    container_detail: workload?.observed?.detail ?? null,
    gpu_fault: row.gpu_fault,
    status_since: isoTime(row.entered_ms),
    last_reachable_at: timeOf(row.last_reachable_ms),
    unreachable_since: timeOf(row.unreachable_since_ms),
    ends_at: timeOf(row.auto_terminate_ms),
  };
}

/** A fact about a rental: an event or a decision. */
interface Note {
  atMs: number;
  untilMs?: number | null;
  what: string;
  ucents?: bigint;
  detail: string | null;
}

const byTime = (a: Note, b: Note): number => a.atMs - b.atMs;

/** A host that came and went makes thousands of charges and credits. The newest are shown. */
function newest(notes: readonly Note[]): Note[] {
  return notes.toSorted(byTime).slice(-NOTES_SHOWN_MAX);
}

function noteFields({ atMs, untilMs, what, ucents, detail }: Note): Fields {
  return {
    at: isoTime(atMs),
    until: timeOf(untilMs ?? null),
    what,
    dollars: ucents === undefined ? null : dollarText(ucents),
    detail,
  };
}

async function eventNotes(query: Query, id: string, events: Events): Promise<Note[]> {
  const rows = await events.ofSubject(query, id, { count: NOTES_SHOWN_MAX });
  return rows.map((event) => {
    const { reason, machine_id: machineId } = event.data;
    const machine = typeof machineId === 'string' ? `machine ${machineId}` : null;
    return { atMs: event.created_ms, what: event.type, detail: typeof reason === 'string' ? reason : machine };
  });
}

function chargeNotes(segments: readonly Segment[], nowMs: number): Note[] {
  return segments.map((segment) => ({
    atMs: segment.started_ms,
    untilMs: segment.ended_ms,
    what: 'charged',
    ucents: costUcents(segment, segment.ended_ms ?? nowMs),
    detail: `$${dollarText(segment.rate_ucents_per_hour)} an hour, machine ${segment.machine_id}`,
  }));
}

async function creditNotes(query: Query, id: string, segments: readonly Segment[]): Promise<Note[]> {
  const times = (await freeTimesOf(query, id)).map((time): Note => {
    const held = time.held_ucents === 0n ? '' : `; $${dollarText(time.held_ucents)} more is held`;
    return {
      atMs: time.from_ms,
      // The same end as on the bill: the outage may have been noticed as over after the first good probe, from which the rental is charged.
      untilMs: time.free_ms === null ? null : freeUntilMs(time, time.free_ms, segments),
      what: `not charged: ${time.cause}`,
      ucents: time.granted_ucents,
      detail: `${time.evidence}${held}`,
    };
  });
  const held = (await heldOf(query, id)).map((row): Note => ({
    atMs: row.created_ms,
    untilMs: row.decided_ms,
    what: `${row.kind} ${row.state}: ${row.why}`,
    ucents: row.amount_ucents,
    detail: row.note === null ? row.id : `${row.id}: ${row.note}`,
  }));
  const disputes = (await disputesOf(query, id)).map((row): Note => ({
    atMs: row.opened_ms,
    untilMs: row.resolved_ms,
    what: `dispute ${row.state}`,
    ucents: row.refunded_ucents,
    detail: row.note === null ? row.reason : `${row.reason}; ${row.note}`,
  }));
  return [...times, ...held, ...disputes];
}

async function ledgerNotes(query: Query, id: string): Promise<Note[]> {
  return (await explainedTransfers(query, id, NOTES_SHOWN_MAX)).map((transfer) => ({
    atMs: transfer.posted_ms,
    what: `posted ${transfer.kind}`,
    ucents: transfer.amount_ucents,
    detail: transfer.evidence,
  }));
}

/** The current state of the probes, with all values that they store. */
async function probeNotes(query: Query, id: string, nowMs: number): Promise<Note[]> {
  const probe = await findProbe(query, id);
  if (probe === undefined) return [];
  const facts = Object.entries(probe).filter(([name, value]) => value !== null && !name.endsWith('_id'));
  return [{ atMs: nowMs, what: 'probes now', detail: facts.map(([name, value]) => `${name} ${value}`).join(', ') }];
}

function timeOf(ms: number | null): string | null {
  return ms === null ? null : isoTime(ms);
}
