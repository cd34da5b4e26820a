// The interface of this room: commands of the operator, the choice for launches, the driver for the engine, and the customers' list.
import type { NewReservation, Reservation, ReservedInstance } from '../../../shared/api/reservation.ts';
import { type Clock, isoTime } from '../../../shared/clock.ts';
import { fail, failField } from '../../../shared/errors.ts';
import type { Ids } from '../../../shared/ids.ts';
import type { Db, Query, Tx } from '../../base/db/db.ts';
import type { PageStart } from '../../base/http/cursors.ts';
import type { Driver } from '../../base/operations/engine.ts';
import type { Log } from '../../../shared/log.ts';
import { type Slots, slotsOf } from '../../fleet/supply/slots.ts';
import { awaitedGpus, claim, replaceLost } from './allocate.ts';
import { choose, type ChosenContract, chooseType, type ReservedLaunch } from './choose.ts';
import { assertCanBeFilled, type Outlook, outlookOf } from './outlook.ts';
import { move, type MoveDeps } from './states.ts';
import * as store from './store.ts';
import { DAY_MS, isOver, lastEnd, nextStep, resumed, type Term } from './term.ts';
import { reservationView } from './view.ts';

/** A contract as the operator sees it, with the present state of its slots. */
export interface OperatorView {
  contract: store.ReservationRow;
  slots: Slots[];
  /** Number of GPUs that the contract waits for. They become its slots when they come free. */
  awaited: number;
  /** When GPUs are set aside for the contract. */
  claimMs: number;
  /** The GPUs that the contract would find at its start; null from `claimMs` on. */
  outlook: Outlook | null;
}

export interface Reservations {
  /**
   * Makes a contract. Its GPUs stay on the market until its lead time. From then on it waits for GPUs that are in use.
   * @throws ServiceError `conflict`, `validation_failed`
   */
  create(request: NewReservation): Promise<OperatorView>;
  /** A page of the contracts of all organisations, newest first. */
  list(start: PageStart): Promise<OperatorView[]>;
  /** @throws ServiceError `not_found` */
  show(id: string): Promise<OperatorView>;
  /** Suspends a contract: new launches under it are refused from now on. @throws ServiceError `not_found`, `conflict` */
  suspend(id: string): Promise<OperatorView>;
  /** Ends a suspension. @throws ServiceError `not_found`, `conflict` */
  resume(id: string): Promise<OperatorView>;
  /** Ends the contract for good. @throws ServiceError `not_found`, `conflict` */
  cancel(id: string): Promise<OperatorView>;
  /** Moves the end of the term to a later time. @throws ServiceError `not_found`, `conflict`, `validation_failed` */
  extend(id: string, untilMs: number): Promise<OperatorView>;
  /** Replaces the unused slots that cannot be launched on by free GPUs of the same type and region. @throws ServiceError `not_found`, `conflict` */
  reassign(id: string): Promise<OperatorView>;
  /** What the organisation sees of its contracts (specification 2.7), newest first. */
  ofOrg(orgId: string): Promise<Reservation[]>;
  /** What the organisation sees of the contracts with these ids, by id. Contracts of other organisations are left out. */
  describe(query: Query, orgId: string, ids: readonly string[]): Promise<Map<string, Reservation>>;
  /** The contract that a reserved launch goes under. @throws ServiceError `reservation/*` */
  choose(tx: Tx, launch: ReservedLaunch): Promise<ChosenContract>;
  /** The GPU type of a reserved launch that names none. `choose` then accepts this type, or refuses it with the right error. */
  chooseType(tx: Tx, launch: Omit<ReservedLaunch, 'gpuType'>): Promise<string>;
  /** The driver that the engine calls for due contracts. */
  driver: Driver;
}

export interface ReservationsDeps extends MoveDeps {
  db: Db;
  clock: Clock;
  ids: Ids;
  log: Log;
  /** How long before its start the GPUs of a contract are set aside. */
  leadMs: number;
  /** Until `untilMs`, hosts reconnect after an absence of the control plane. */
  quiet: { readonly untilMs: number };
  /** The instances of each contract that are not terminated, oldest first. */
  describeInstances(query: Query, reservationIds: readonly string[]): Promise<Map<string, ReservedInstance[]>>;
}

export function openReservations(deps: ReservationsDeps): Reservations {
  const { db, clock } = deps;
  const seen = (query: Query, contract: store.ReservationRow): Promise<OperatorView> =>
    operatorView(query, contract, deps);
  const change = (
    name: string,
    id: string,
    body: (tx: Tx, contract: store.ReservationRow) => Promise<store.ReservationRow>,
  ): Promise<OperatorView> =>
    db.tx(`reservations.${name}`, async (tx) => {
      await tx.lock('reservation', id);
      return seen(tx, await body(tx, await upToDate(tx, id, deps)));
    });
  return {
    create: (request) =>
      db.tx('reservations.create', async (tx) => {
        await tx.lock('org', request.org_id);
        return seen(tx, await create(tx, request, deps));
      }),
    list: async (start) => {
      const contracts = await store.pageOfReservations(db.read, start);
      return Promise.all(contracts.map((contract) => seen(db.read, contract)));
    },
    show: async (id) => seen(db.read, await find(db.read, id)),
    suspend: (id) => change('suspend', id, (tx, contract) => move(tx, contract, 'suspended', deps)),
    resume: (id) =>
      change('resume', id, (tx, contract) => {
        if (contract.status !== 'suspended') fail('conflict', `The reservation is ${contract.status}, not suspended.`);
        return move(tx, contract, resumed(contract, clock.now()), deps);
      }),
    cancel: (id) => change('cancel', id, (tx, contract) => move(tx, contract, 'cancelled', deps)),
    extend: (id, untilMs) =>
      change('extend', id, async (tx, contract) => {
        assertLive(contract);
        if (untilMs <= contract.ends_ms) {
          failField('ends_at', `must be later than the end so far, ${isoTime(contract.ends_ms)}`);
        }
        await assertCanBeFilled(tx, { ...contract, ends_ms: untilMs }, clock.now());
        return setEnd(tx, contract, { starts_ms: contract.starts_ms, ends_ms: untilMs }, deps);
      }),
    reassign: (id) => change('reassign', id, (tx, contract) => reassign(tx, contract, deps)),
    ofOrg: async (orgId) => viewsOf(db.read, await store.reservationsOfOrg(db.read, orgId), deps),
    describe: async (query, orgId, ids) => {
      const own = (await store.reservationsOfOrg(query, orgId)).filter(({ id }) => ids.includes(id));
      return new Map((await viewsOf(query, own, deps)).map((view) => [view.reservation_id, view]));
    },
    choose: (tx, launch) => choose(tx, launch, clock.now()),
    chooseType: (tx, launch) => chooseType(tx, launch, clock.now()),
    driver: {
      name: 'reservations',
      due: (nowMs, limit) => store.dueReservations(db.read, { nowMs, leadMs: leadNow(deps) }, limit),
      drive: (id) => drive(id, deps),
    },
  };
}

/**
 * The lead time of contracts for the engine. While hosts reconnect, a contract gets no GPUs before its start. Otherwise it would get the GPUs of the
 * hosts that come back first, a few on each, and could never serve a launch with many GPUs on one machine.
 */
function leadNow({ clock, leadMs, quiet }: ReservationsDeps): number {
  return clock.now() < quiet.untilMs ? 0 : leadMs;
}

async function viewsOf(
  query: Query,
  contracts: readonly store.ReservationRow[],
  { describeInstances, clock }: ReservationsDeps,
): Promise<Reservation[]> {
  const instances = await describeInstances(
    query,
    contracts.map(({ id }) => id),
  );
  const views = contracts.map(async (contract) => {
    const slots = await slotsOf(query, contract.id);
    return reservationView(contract, { slots, instances: instances.get(contract.id) ?? [] }, clock.now());
  });
  return Promise.all(views);
}

async function drive(id: string, deps: ReservationsDeps): Promise<void> {
  const { began, missing, orgId } = await deps.db.tx('reservations.drive', async (tx) => {
    await tx.lock('reservation', id);
    const { status: before, org_id } = await find(tx, id);
    const { status } = await upToDate(tx, id, { ...deps, leadMs: leadNow(deps) });
    return {
      began: before === 'pending' && status === 'active',
      missing: await awaitedGpus(tx, id),
      orgId: org_id,
    };
  });
  if (!began || missing === 0) return;
  deps.log.error(
    { reservation_id: id, org_id: orgId, missing_gpus: missing },
    'a reservation contract begins without all of its GPUs; it gets the others as they come free',
  );
}

async function reassign(
  tx: Tx,
  contract: store.ReservationRow,
  { supply, events, leadMs }: ReservationsDeps,
): Promise<store.ReservationRow> {
  const { id, org_id: orgId } = contract;
  assertLive(contract);
  if (contract.claimed_ms === null) {
    fail('conflict', `It has no GPUs yet: they are set aside at ${isoTime(contract.starts_ms - leadMs)}.`);
  }
  await supply.unreserveStranded(tx, id);
  await replaceLost(tx, contract, supply);
  await events.append(tx, { type: 'reservation.reassigned', subjectId: id, orgId, data: {} });
  return contract;
}

async function create(tx: Tx, request: NewReservation, deps: ReservationsDeps): Promise<store.ReservationRow> {
  const nowMs = deps.clock.now();
  const contract: store.ReservationRow = {
    id: deps.ids.ulid(),
    org_id: request.org_id,
    title: request.title,
    status: 'pending',
    renewal: request.renewal,
    commitment: request.commitment,
    starts_ms: Date.parse(request.starts_at),
    ends_ms: Date.parse(request.ends_at),
    first_ms: Date.parse(request.starts_at),
    created_ms: nowMs,
    claimed_ms: null,
  };
  // Shorter terms would be renewed too often, and thousands of times after a long stop of the control plane.
  if (contract.ends_ms < contract.starts_ms + DAY_MS) failField('ends_at', 'must be at least a day after starts_at');
  if (contract.ends_ms <= nowMs) failField('ends_at', 'must be in the future');
  await assertCanBeFilled(tx, contract, nowMs);
  await store.insertReservation(tx, contract);
  const { id, org_id: orgId, status } = contract;
  await deps.events.append(tx, { type: 'reservation.pending', subjectId: id, orgId, data: { status } });
  return upToDate(tx, id, deps);
}

/** Applies every step that is due by now, each with its event, and returns the contract. */
async function upToDate(tx: Tx, id: string, deps: ReservationsDeps): Promise<store.ReservationRow> {
  let contract = await find(tx, id);
  const nowMs = deps.clock.now();
  if (contract.claimed_ms === null && !isOver(contract) && contract.starts_ms - deps.leadMs <= nowMs) {
    await claim(tx, contract, deps.supply);
    await store.setClaimed(tx, id, nowMs);
    contract = { ...contract, claimed_ms: nowMs };
  }
  for (;;) {
    const step = nextStep(contract, nowMs);
    if (step === undefined) return contract;
    contract = 'status' in step ? await move(tx, contract, step.status, deps) : await setEnd(tx, contract, step, deps);
  }
}

async function setEnd(
  tx: Tx,
  contract: store.ReservationRow,
  term: Term,
  { events, supply }: MoveDeps,
): Promise<store.ReservationRow> {
  const { id, org_id: orgId } = contract;
  await store.setTerm(tx, id, term);
  await supply.extendWants(tx, id, lastEnd({ ...contract, ...term }));
  const data = { starts_at: isoTime(term.starts_ms), ends_at: isoTime(term.ends_ms) };
  await events.append(tx, { type: 'reservation.extended', subjectId: id, orgId, data });
  return { ...contract, ...term };
}

async function find(query: Query, id: string): Promise<store.ReservationRow> {
  return (await store.findReservation(query, id)) ?? fail('not_found', `There is no reservation ${id}.`);
}

function assertLive(contract: store.ReservationRow): void {
  if (isOver(contract)) fail('conflict', `The reservation is ${contract.status}; make a new one.`);
}

async function operatorView(
  query: Query,
  contract: store.ReservationRow,
  { clock, leadMs }: ReservationsDeps,
): Promise<OperatorView> {
  const isAhead = contract.claimed_ms === null && !isOver(contract);
  return {
    contract,
    slots: await slotsOf(query, contract.id),
    awaited: await awaitedGpus(query, contract.id),
    claimMs: contract.claimed_ms ?? contract.starts_ms - leadMs,
    outlook: isAhead ? await outlookOf(query, contract, clock.now()) : null,
  };
}
