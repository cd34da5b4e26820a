// The list of what each room adds to the control plane: routes, loops and more. Sockets, loops, metrics, retention, proofs and the operator's
// commands iterate over this list.
import { fail } from '../shared/errors.ts';
import type { LoopOptions, LoopStatus } from '../shared/loop.ts';
import type { Fields } from './base/http/operator.ts';
import type { Audit } from './admin/audit.ts';
import { adminBrings } from './admin/brings.ts';
import { accountsBrings } from './base/accounts/brings.ts';
import { blobsBrings } from './base/blobs/brings.ts';
import { dbBrings } from './base/db/brings.ts';
import type { Secondaries } from './base/db/members.ts';
import type { Primacy } from './base/db/primacy.ts';
import type { DiskUse } from './base/db/readiness.ts';
import type { Query } from './base/db/db.ts';
import type { Forgets } from './base/db/pieces.ts';
import { eventsBrings } from './base/events/brings.ts';
import type { Feed } from './base/events/events.ts';
import type { Cursors } from './base/http/cursors.ts';
import type { Measure, Metrics } from './base/http/metrics.ts';
import type { DueRows, Servers, Waits } from './base/http/overview.ts';
import type { Route } from './base/http/route.ts';
import { usersBrings } from './base/users/brings.ts';
import { operationsBrings } from './base/operations/brings.ts';
import type { Driver } from './base/operations/engine.ts';
import type { Config } from './config.ts';
import { consoleBrings } from './console/brings.ts';
import type { Console } from './console/console.ts';
import { docsBrings } from './docs/brings.ts';
import type { Manual } from './docs/manual.ts';
import { linkBrings } from './fleet/link/brings.ts';
import { metricsBrings } from './fleet/metrics/brings.ts';
import { supplyBrings } from './fleet/supply/brings.ts';
import { findSupplier, supplierOfOrg } from './fleet/supply/store.ts';
import { workloadsBrings } from './fleet/workloads/brings.ts';
import { ROOMS } from './foundation.ts';
import { catalogBrings } from './models/catalog/brings.ts';
import { filesBrings } from './models/files/brings.ts';
import { fineTuningBrings } from './models/finetuning/brings.ts';
import { gatewayBrings } from './models/gateway/brings.ts';
import { replicasBrings } from './models/replicas/brings.ts';
import { videosBrings } from './models/videos/brings.ts';
import { billBrings } from './money/bill/brings.ts';
import { correctionsBrings } from './money/corrections/brings.ts';
import { depositsBrings } from './money/deposits/brings.ts';
import { creditsBrings } from './money/credits/brings.ts';
import type { Billed } from './money/ledger/wallets.ts';
import { openBooks, type Proofs } from './money/ledger/books.ts';
import { ledgerBrings } from './money/ledger/brings.ts';
import { openMonthLines } from './money/ledger/month-lines.ts';
import { meteringBrings } from './money/metering/brings.ts';
import { balanceBelowHours } from './money/metering/runway.ts';
import { payoutsBrings } from './money/payouts/brings.ts';
import { endpointsBrings } from './rental/endpoints/brings.ts';
import { instancesBrings } from './rental/instances/brings.ts';
import { latestEnd } from './rental/instances/plan.ts';
import {
  findShown,
  LIVE,
  machinesOf,
  measuredInstance,
  rentalsOf,
  runningInstances,
  subjectsOf,
} from './rental/instances/store.ts';
import { journalBrings } from './rental/journal/brings.ts';
import { launchBrings } from './rental/launch/brings.ts';
import { noticesBrings } from './rental/notices/brings.ts';
import { outagesBrings } from './rental/outages/brings.ts';
import { failingProbesOf } from './rental/outages/store.ts';
import { reservationsBrings } from './rental/reservations/brings.ts';
import { webhooksBrings } from './rental/webhooks/brings.ts';
import type { Rooms } from './rooms.ts';
import type { Core } from './settings.ts';

const DAY_MS = 86_400_000;

export interface RoomLoop extends LoopOptions {
  /** The loop ends before streams are drained, while all other loops go on. */
  endsBeforeDrain?: boolean;
  /** Each control plane runs it, also a secondary. */
  everywhere?: boolean;
}

export interface Brings extends Proofs {
  /** Routes of the public listener, including those of agents. The OpenAPI document shows them unless they are hidden. */
  routes?: readonly Route[];
  /** Routes of the operator's socket. */
  operatorRoutes?: readonly Route[];
  /** Kinds of due rows that the engine drives. */
  drivers?: readonly Driver[];
  loops?: readonly RoomLoop[];
  measures?: readonly Measure[];
  /** Kinds of things that wait for a decision of an operator. */
  waits?: readonly Waits[];
  /** Kinds of rows that the loops and drivers of the room work off. */
  dueRows?: readonly DueRows[];
  /** Servers that answer requests to models. */
  servers?: readonly Servers[];
  forgets?: readonly Forgets[];
  /** Resources whose events are in the live stream. */
  feeds?: readonly Feed[];
  /** The section of the bill for each kind of transfer with which the room changes wallets. */
  billed?: Billed;
  /** Disconnects clients, before the API closes. */
  leave?(): Promise<void>;
  /** Lets work in progress end, while the API closes. */
  finish?(): Promise<void>;
  /** Runs after the last loop has ended. */
  close?(): Promise<void>;
}

/** Values of this process that no room has. */
export interface Process {
  cursors: Cursors;
  keep: Config['retention'];
  audit: Audit;
  metrics: Metrics;
  /** The pages of the manual, rendered. */
  manual: Manual;
  console: Console;
  loops(): LoopStatus[];
  /** Rows that the engine of this process drove since its start, by driver. */
  driven(): ReadonlyMap<string, number>;
  startedMs: number;
  /** Number of the start: each start on the database has a higher one. 0 until this process is the primary. */
  epoch(): number;
  /** Since when this process is the primary, and how it became that; undefined until it is. */
  primacy(): Primacy | undefined;
  /** The control planes that serve beside this one; undefined if there can be none. */
  secondaries?: Secondaries | undefined;
  /** Reads the use of the disk with the database; undefined if the database is on a PostgreSQL server. */
  disk?: (() => Promise<DiskUse>) | undefined;
  reload(): Promise<Fields>;
}

type Room = (typeof ROOMS)[number];
type Wing<Name extends string> = Record<Extract<Room, `${Name}/${string}`>, Brings>;

/** The rooms stand in the order of the house. A missing room is a compile error. */
export function bringsOf(core: Core, rooms: Rooms, own: Process): readonly Brings[] {
  const { db, clock, log } = core;
  const inOrder = (): Brings[] => ROOMS.map((room) => brings[room]);
  const billed = (): Billed => Object.assign({}, ...inOrder().map((room) => room.billed ?? {})) as Billed;
  const brings: Record<Room, Brings> = {
    ...baseBrings(core, rooms, own),
    ...moneyBrings(core, rooms, own),
    'money/bill': billBrings({
      db,
      clock,
      ledger: rooms.ledger,
      assertOrg: rooms.accounts.assertOrg,
      cursors: own.cursors,
      rentalOf,
      rentalsOf,
      billed,
    }),
    'money/ledger': ledgerBrings({
      db,
      books: openBooks({ db, clock, log, proofs: inOrder }),
      months: openMonthLines({ db, clock, log, billed }),
    }),
    ...fleetBrings(core, rooms, own),
    ...rentalBrings(core, rooms, { ...own, feeds: () => brought(inOrder(), 'feeds') }),
    ...modelsBrings(core, rooms, own),
    admin: adminBrings({
      db,
      clock,
      cursors: own.cursors,
      ledger: rooms.ledger,
      assertOrg: rooms.accounts.assertOrg,
      events: rooms.events,
      instances: rooms.instances,
      audit: own.audit,
      metrics: own.metrics,
      loops: own.loops,
      driven: own.driven,
      processId: core.ids.prefixed('prc'),
      process: own,
      waits: () => brought(inOrder(), 'waits'),
      dueRows: () => brought(inOrder(), 'dueRows'),
      servers: () => brought(inOrder(), 'servers'),
      reload: own.reload,
    }),
    docs: docsBrings({ manual: own.manual }),
    console: consoleBrings({ console: own.console }),
  };
  return inOrder();
}

/** The entries of one member (`part`) from all rooms, in one list. */
export function brought<
  Part extends
    | 'routes'
    | 'operatorRoutes'
    | 'drivers'
    | 'loops'
    | 'measures'
    | 'forgets'
    | 'feeds'
    | 'waits'
    | 'dueRows'
    | 'servers',
>(brings: readonly Brings[], part: Part): NonNullable<Brings[Part]>[number][] {
  return brings.flatMap((room) => (room[part] ?? []) as NonNullable<Brings[Part]>[number][]);
}

function baseBrings(
  { db, clock, ids, log }: Core,
  rooms: Rooms,
  { cursors, keep, secondaries, primacy }: Process,
): Wing<'base'> {
  const { accounts, users, sshKeys, events, operations, blobs } = rooms;
  const { presignedUrls, urlKeys, files, videos, fineTuning } = rooms;
  const namedBy = { files: files.namedBlobs, videos: videos.namedBlobs, finetuning: fineTuning.namedBlobs };
  return {
    'base/db': dbBrings({ readiness: rooms.readiness, secondaries, primacy }),
    'base/http': {},
    'base/blobs': blobsBrings({ clock, log, blobs, presignedUrls, urlKeys, namedBy }),
    'base/outbound': {},
    'base/systemd': {},
    'base/mail': {},
    'base/accounts': accountsBrings({
      db,
      clock,
      ids,
      events,
      cursors,
      accounts,
      sshKeys,
      present: users.sessions.present,
      keepMs: keep.events_days * DAY_MS,
    }),
    'base/users': usersBrings({ db, clock, cursors, users }),
    'base/events': eventsBrings({ db, clock, keepMs: keep.events_days * DAY_MS }),
    'base/operations': operationsBrings({ db, clock, operations, keepMs: keep.operations_days * DAY_MS }),
  };
}

function moneyBrings(
  { db, clock }: Core,
  rooms: Rooms,
  { cursors, keep }: Process,
): Omit<Wing<'money'>, 'money/ledger' | 'money/bill'> {
  const { ledger, metering, payouts, ownOutages, instances } = rooms;
  const { beat } = ownOutages;
  const { stopUnpaid } = instances;
  const supplierOf: Parameters<typeof payoutsBrings>[0]['supplierOf'] = async (query, orgId) =>
    (await supplierOfOrg(query, orgId))?.id;
  return {
    'money/credits': creditsBrings({ db, cursors, credits: rooms.credits }),
    'money/metering': meteringBrings({ db, clock, cursors, ledger, metering, beat, stopUnpaid }),
    'money/corrections': correctionsBrings({ corrections: rooms.corrections, assertOrg: rooms.accounts.assertOrg }),
    'money/deposits': depositsBrings({ db, clock, cursors, events: rooms.events, deposits: rooms.deposits }),
    'money/payouts': payoutsBrings({
      db,
      clock,
      cursors,
      ledger,
      payouts,
      machinesOf: machinesOfAll(rooms),
      subjectsOf: subjectsOfAll(rooms),
      supplierOf,
      supplierStatus: async (query, id) => (await findSupplier(query, id))?.status,
      keepMs: keep.events_days * DAY_MS,
    }),
  };
}

const rentalOf: Parameters<typeof billBrings>[0]['rentalOf'] = async (query, orgId, id) => {
  const found = await findShown(query, orgId, id);
  if (found === undefined) return fail('not_found', `There is no instance ${id}.`);
  return { hasEnded: !LIVE.has(found.status) && found.status !== 'stopping' };
};

/** Number of ids in one query. A supplier may have earned with more rentals than a statement can have parameters. */
const IDS_PER_QUERY = 1_000;

/** The machines of instances and of fine-tuning jobs, because suppliers earn with both. Any number of ids is possible. */
export function machinesOfAll({
  fineTuning,
}: {
  fineTuning: Pick<Rooms['fineTuning'], 'machinesOf'>;
}): typeof machinesOf {
  return async (query, ids) => {
    const machines = new Map<string, string>();
    for (let from = 0; from < ids.length; from += IDS_PER_QUERY) {
      const piece = ids.slice(from, from + IDS_PER_QUERY);
      for (const [id, machine] of await machinesOf(query, piece)) machines.set(id, machine);
      for (const [id, machine] of await fineTuning.machinesOf(query, piece)) machines.set(id, machine);
    }
    return machines;
  };
}

/** The instances and the fine-tuning jobs of machines. */
function subjectsOfAll({ fineTuning }: { fineTuning: Pick<Rooms['fineTuning'], 'jobsOf'> }): typeof subjectsOf {
  return async (query, ids) => [...(await subjectsOf(query, ids)), ...(await fineTuning.jobsOf(query, ids))];
}

function fleetBrings({ db, clock }: Core, rooms: Rooms, { cursors, keep }: Process): Wing<'fleet'> {
  const { supply, payouts, link, presence, cloneTokens, workloads, fleetMetrics: metrics } = rooms;
  const keepMs = keep.workloads_days * DAY_MS;
  return {
    'fleet/supply': supplyBrings({
      db,
      clock,
      cursors,
      supply,
      payouts,
      machinesOf: machinesOfAll(rooms),
      subjectsOf: subjectsOfAll(rooms),
      latestEnd,
      failingProbes: failingProbesOf,
    }),
    'fleet/link': linkBrings({ link, presence, cloneTokens }),
    'fleet/placement': {},
    'fleet/workloads': workloadsBrings({
      db,
      clock,
      cursors,
      workloads,
      push: link.push,
      keepMs,
      chargedJobs: rooms.fineTuning.chargedTimes,
    }),
    'fleet/metrics': metricsBrings({ db, clock, metrics, instanceOf: measuredInstance, runningOf: runningInstances }),
  };
}

function rentalBrings(
  { db, clock }: Core,
  rooms: Rooms,
  { cursors, feeds }: Process & { feeds(): readonly Feed[] },
): Wing<'rental'> {
  const { launch, reservations, instances, quiet, watch, decoys, ownOutages, events, logs, live, webhooks, notices } =
    rooms;
  const belowHours = (query: Query, orgId: string): Promise<number | null> =>
    balanceBelowHours(query, orgId, { ledger: rooms.ledger, nowMs: clock.now() });
  return {
    'rental/launch': launchBrings({ db, cursors, launch }),
    'rental/endpoints': endpointsBrings({ db, endpoints: rooms.endpoints }),
    'rental/reservations': reservationsBrings({ cursors, reservations, assertOrg: rooms.accounts.assertOrg }),
    'rental/instances': instancesBrings({ db, clock, cursors, events, instances, balanceBelowHours: belowHours }),
    'rental/edge': {},
    'rental/outages': outagesBrings({ db, clock, events, watch, decoys, ownOutages, quiet }),
    'rental/journal': journalBrings({ db, clock, cursors, events, instances, logs, live, feeds }),
    'rental/webhooks': webhooksBrings({ db, clock, cursors, webhooks }),
    'rental/notices': noticesBrings({ db, clock, notices }),
  };
}

function modelsBrings({ db, clock }: Core, rooms: Rooms, { cursors, keep }: Process): Wing<'models'> {
  const { catalog, replicas, gateway, videos, blobs, files, fineTuning } = rooms;
  const keepMs = keep.receipts_days * DAY_MS;
  return {
    'models/catalog': catalogBrings({ catalog, wakes: replicas.wakes }),
    'models/replicas': replicasBrings({ db, clock, catalog, replicas, keepMs }),
    'models/gateway': gatewayBrings({ db, clock, cursors, gateway, keepMs }),
    'models/videos': videosBrings({ db, clock, cursors, blobs, videos }),
    'models/files': filesBrings({ db, clock, files }),
    'models/finetuning': fineTuningBrings({ db, fineTuning }),
  };
}
