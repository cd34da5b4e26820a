// Creates and connects the rooms of the house in their order. Opens no socket and starts no loop: house.ts does that, and tests drive the
// rooms by hand.
import type { Clock } from '../shared/clock.ts';
import type { Ids } from '../shared/ids.ts';
import { type Log, throttledLog } from '../shared/log.ts';
import type { Rng } from '../shared/rng.ts';
import { openAccounts } from './base/accounts/accounts.ts';
import { openSshKeys, type SshKeys } from './base/accounts/ssh-keys.ts';
import type { Blobs } from './base/blobs/blobs.ts';
import type { PresignedUrls } from './base/blobs/presigned-urls.ts';
import type { Db } from './base/db/db.ts';
import { openReadiness } from './base/db/readiness.ts';
import { type Events, openEvents } from './base/events/events.ts';
import type { Sealing } from './base/http/sealing.ts';
import { type Operations, openOperations } from './base/operations/operations.ts';
import type { Outbound } from './base/outbound/outbound.ts';
import type { LossBounds } from './money/credits/bounds.ts';
import { openCredits } from './money/credits/credits.ts';
import { type Ledger, openLedger } from './money/ledger/ledger.ts';
import { type Metering, openMetering } from './money/metering/metering.ts';
import { machinesThatServed } from './money/metering/store.ts';
import { openPayouts } from './money/payouts/payouts.ts';
import { type Presence, openPresence, openLinkRecords } from './fleet/link/presence.ts';
import { type Link, openLink } from './fleet/link/link.ts';
import { openArrival } from './fleet/link/arrival.ts';
import { type CloneTokens, openCloneTokens } from './fleet/link/clone-tokens.ts';
import { findMachine } from './fleet/supply/store.ts';
import { openSupply, type Supply } from './fleet/supply/supply.ts';
import { openWorkloads, type Workloads } from './fleet/workloads/workloads.ts';
import type { AppSite } from './rental/endpoints/app-address.ts';
import { type Endpoints, openEndpoints } from './rental/endpoints/endpoints.ts';
import { openReservations, type Reservations, type ReservationsDeps } from './rental/reservations/reservations.ts';
import { type Instances, openInstances } from './rental/instances/instances.ts';
import type { Probes } from './rental/instances/steps.ts';
import type { Images } from './rental/launch/images.ts';
import { type LaunchRoom, openLaunch } from './rental/launch/launch.ts';
import type { ModelHub } from './rental/launch/model-hub.ts';
import type { Presets } from './rental/launch/runnable.ts';
import { type Decoys, openDecoys } from './rental/outages/decoys.ts';
import { downSince, startSeries } from './rental/outages/store.ts';
import { openOwnOutages } from './rental/outages/own-outages.ts';
import { logIn, newProbeKey, openProbes } from './rental/outages/probe.ts';
import { openWatch, type Watch } from './rental/outages/watch.ts';
import { openLogs } from './rental/journal/logs.ts';
import { openWebhooks, type Webhooks } from './rental/webhooks/webhooks.ts';
import { openCatalog } from './models/catalog/catalog.ts';
import type { CatalogModel } from './models/catalog/models.ts';
import { openFiles } from './models/files/files.ts';
import { openGateway } from './models/gateway/gateway.ts';
import type { OpenMax } from './models/gateway/requests.ts';
import { openVideos } from './models/videos/videos.ts';

/** Dependencies that every room may get. */
export interface Core {
  db: Db;
  clock: Clock;
  ids: Ids;
  rng: Rng;
  log: Log;
  sealing: Sealing;
}

export interface Settings {
  platformFeeBps: number;
  launchHoldMinutes: number;
  /** The time from an entry of earnings until it may be paid out. */
  earningsDelayMs: number;
  /** The time before a reservation contract begins in which its GPUs are set aside. */
  reservationLeadMs: number;
  /** What may be given away in a day without the operator. */
  lossBounds: LossBounds;
  openLaunchesPerOrg: number;
  /** GPU hours that launches of one organisation may hold without running, in any 24 hours. */
  unpaidGpuHoursPerOrg: number;
  diskPriceUcentsPerGbHour: bigint;
  /** The host name at which customers reach an instance. */
  hostnameOf(instanceId: string): string;
  /** The address of applications; undefined if they are not served. */
  appSite: AppSite | undefined;
  sshPorts: { first: number; last: number };
  /** Probes find the public SSH ports at this address. */
  sshHost: string;
  /** Templates and environments, which can be launched without an own image. */
  presets: Presets;
  /** Limit for one webhook delivery. */
  webhookMaxAttempts: number;
  /** The models that can be called. */
  models: readonly CatalogModel[];
  /** Open inference requests of one API key. */
  openInferenceRequestsPerKey: number;
  /** The same of all keys of one organisation. */
  openInferenceRequestsPerOrg: number;
  /** Limit of open jobs of one organisation. */
  openVideosPerOrg: number;
  /** The largest file of a video. */
  videoBytesMax: number;
  /** Limits for one uploaded file, and for all files of one organisation. */
  fileBytesMax: number;
  fileBytesPerOrg: number;
}

/** Settings that the operator may change while the process runs. Rooms read them at each use and keep no copy. */
export type Changeable = Pick<
  Settings,
  | 'presets'
  | 'models'
  | 'openLaunchesPerOrg'
  | 'openInferenceRequestsPerKey'
  | 'openInferenceRequestsPerOrg'
  | 'openVideosPerOrg'
>;

/** Functions that rooms call after a commit, to wake other parts. */
export interface Nudges {
  engine(): void;
  edge(): void;
  watch(): void;
  webhooks(): void;
}

/** What is outside of the rooms. `probes`, `logIn` and `openStream` replace the network in tests. */
interface Outside {
  nudges: Nudges;
  /** False while the disk of the database is full. */
  hasRoom(): boolean;
  webhookOutbound: Outbound;
  images: Pick<Images, 'verify' | 'pullLogin'>;
  modelHub: Pick<ModelHub, 'sizeOf'>;
  storage: { blobs: Blobs; presignedUrls: PresignedUrls };
  probes?: Probes;
  logIn?: typeof logIn;
  openStream?: Link['openStream'];
}

/** All rooms at work, by name. */
export type Rooms = ReturnType<typeof openRooms>;

/** A machine has served others if they were charged for at least this long. */
const SERVED_MS_MIN = 3_600_000;

/** Settings that are `Changeable` are read at each use. */
export function openRooms(core: Core, given: Settings, outside: Outside) {
  const { db, clock, ids, rng, log, sealing } = core;
  const { nudges, storage } = outside;
  // A copy, so that a reload changes no object of the caller.
  const settings = { ...given, presets: { ...given.presets } };
  const sshKeys = openSshKeys({ clock, ids });
  const events = openEvents({ clock, ids, onAppend: (tx, event) => webhooks.noteEvent(tx, event) });
  const operations = openOperations({ clock, ids });
  const money = openMoney(core, settings, events);
  const { ledger, metering } = money;
  const fleet: Fleet = openFleet(core, settings, {
    events,
    nudges,
    noteObserved: (tx, instanceId, observed) => rental.instances.noteObserved(tx, instanceId, observed),
    noteGpus: (found) => rental.instances.noteGpus(found),
    pullLogin: (machineId, workloadId) => rental.instances.pullLogin(machineId, workloadId),
    onLife: (machineId) => rental.watch.onLife(machineId),
    onHolder: (machineId, message) => rental.watch.onHolder(machineId, message),
  });
  const rental: Rental = openRental(core, settings, { outside, sshKeys, events, operations, metering, ...fleet });
  const webhooks: Webhooks = openWebhooks({
    db,
    clock,
    ids,
    log,
    rng,
    sealing,
    outbound: outside.webhookOutbound,
    maxAttempts: settings.webhookMaxAttempts,
  });
  const models = openModels(core, settings, { ledger, blobs: storage.blobs, nudges });
  return {
    readiness: openReadiness({ db, clock, log, hasRoom: outside.hasRoom }),
    blobs: storage.blobs,
    presignedUrls: storage.presignedUrls,
    accounts: openAccounts({ db, clock, ids }),
    sshKeys,
    events,
    operations,
    ...money,
    ...fleet,
    ...rental,
    ownOutages: openOwnOutages({ db, clock, log, metering, goodSinceMs: rental.watch.goodSinceMs }),
    logs: openLogs({ db, clock, log, link: { openStream: outside.openStream ?? fleet.link.openStream } }),
    webhooks,
    ...models,
    /** Changes all settings at once, from their next use on. */
    reload: ({ presets, ...next }: Changeable): void => {
      Object.assign(settings, next);
      Object.assign(settings.presets, presets);
      models.catalog.replace(next.models);
    },
  };
}

function openMoney(core: Core, settings: Settings, events: Events) {
  const { db, clock, ids, log } = core;
  const ledger = openLedger({ clock });
  const credits = openCredits({
    db,
    clock,
    ids,
    log,
    ledger,
    events,
    bounds: settings.lossBounds,
    servedOthers: (query, orgId, sinceMs) =>
      machinesThatServed(query, orgId, { sinceMs, nowMs: clock.now(), forMs: SERVED_MS_MIN }),
  });
  const { launchHoldMinutes, earningsDelayMs: delayMs } = settings;
  const metering = openMetering({ db, clock, ids, ledger, credits, launchHoldMinutes });
  return { ledger, credits, metering, payouts: openPayouts({ db, clock, ids, ledger, metering, delayMs }) };
}

/** Functions of the rooms above that the fleet calls. */
interface AboveFleet extends Pick<Instances, 'noteObserved' | 'noteGpus' | 'pullLogin'> {
  onLife: Watch['onLife'];
  onHolder: Watch['onHolder'];
  events: Events;
  nudges: Nudges;
}

interface Fleet {
  supply: Supply;
  workloads: Workloads;
  link: Link;
  presence: Presence;
  cloneTokens: CloneTokens;
}

function openFleet(house: Core, settings: Settings, above: AboveFleet): Fleet {
  const { db, clock, ids, rng, sealing } = house;
  const { nudges, events, noteObserved: onChange, noteGpus: onGpus, pullLogin, onLife, onHolder } = above;
  // Hosts are not trusted, so the log lines that they can cause are limited.
  const log = throttledLog(house.log, clock);
  const { diskPriceUcentsPerGbHour } = settings;
  const supply = openSupply({ db, clock, ids, log, events, onGpus, diskPriceUcentsPerGbHour });
  const isContested = (machineId: string): boolean => link.isContested(machineId);
  const workloads = openWorkloads({ db, clock, log, sealing, supply, onChange, isContested });
  const records = openLinkRecords({ db, clock });
  const cloneTokens = openCloneTokens({ db, sealing });
  const machineKey = async (machineId: string): Promise<string | undefined> =>
    (await findMachine(db.read, machineId))?.public_key ?? undefined;
  const arrive = openArrival({ db, cloneTokens, records, supply, meet: workloads.meet });
  const link: Link = openLink({
    clock,
    ids,
    rng,
    log,
    machineKey,
    cloneTokens,
    handlers: {
      onUp: async (machineId, hello, caller) => {
        await arrive(machineId, hello, caller);
        nudges.engine();
      },
      onDown: async (machineId) => {
        await supply.setOnline(machineId, false);
        await records.down(machineId);
      },
      onObserved: async (machineId, message) => {
        const isTaken = await workloads.observe(machineId, message);
        nudges.engine();
        return isTaken;
      },
      onInventory: async (machineId, inventory) => {
        const isTaken = await supply.reportInventory(machineId, inventory);
        nudges.engine();
        return isTaken;
      },
      pullLogin,
      onLife,
      onHolder,
      desired: (machineId) => workloads.desired(machineId),
    },
  });
  const presence = openPresence({ clock, log, supply, link, cloneTokens });
  return { supply, workloads, link, presence, cloneTokens };
}

interface BelowRental extends Fleet {
  outside: Outside;
  sshKeys: SshKeys;
  events: Events;
  operations: Operations;
  metering: Metering;
}

interface Rental {
  launch: LaunchRoom;
  endpoints: Endpoints;
  decoys: Decoys;
  reservations: Reservations;
  instances: Instances;
  watch: Watch;
}

function openRental(core: Core, settings: Settings, below: BelowRental): Rental {
  const { db, clock, ids, rng, log, sealing } = core;
  const { outside, sshKeys, events, operations, metering, supply, workloads, link } = below;
  const { nudges, images, modelHub } = outside;
  const { hostnameOf, sshPorts: ports, sshHost, reservationLeadMs: leadMs, platformFeeBps, appSite } = settings;
  const launch = openLaunch({ db, clock, ids, log, sealing, images, modelHub, presets: settings.presets });
  const endpoints = openEndpoints({ db, clock, ids, sealing, newProbeKey, hostnameOf, ports });
  const probes = outside.probes ?? openProbes({ db, clock, endpoints, link, sshHost });
  const decoys = openDecoys({
    db,
    clock,
    log,
    rng,
    sealing,
    endpoints,
    link,
    newKey: newProbeKey,
    logIn: outside.logIn ?? logIn,
    customerKeysOf: (query, { org_id: orgId, request }) => sshKeys.linesOf(query, orgId, request.ssh_key_ids ?? null),
    accuse: supply.accuse,
  });
  const describeInstances: ReservationsDeps['describeInstances'] = (query, contracts) =>
    instances.ofReservations(query, contracts);
  const reservations = openReservations({ db, clock, ids, log, events, supply, leadMs, describeInstances });
  const isAnswering = (machineId: string): boolean => link.lifeOf(machineId, '').isAnswering;
  const onEndpointsChanged = (): void => nudges.edge();
  const instances: Instances = openInstances({
    db,
    clock,
    ids,
    log,
    events,
    operations,
    metering,
    supply,
    workloads,
    endpoints,
    reservations,
    probes,
    platformFeeBps,
    appSite,
    openLaunchesMax: () => settings.openLaunchesPerOrg,
    unpaidGpuHoursMax: settings.unpaidGpuHoursPerOrg,
    onRunning: async (tx, started) => {
      await startSeries(tx, started);
      await decoys.start(tx, started);
    },
    downSince: (tx, instanceId, nowMs) => downSince(tx, instanceId, { isAnswering, nowMs }),
    assertSshKeys: (tx, orgId, keyIds) => sshKeys.assertKeysOfOrg(tx, orgId, keyIds),
    runnable: launch.runnable,
    imagePullLogin: launch.pullLogin,
    push: (machineId) => link.push(machineId),
    onEndpointsChanged,
    nudge: () => {
      nudges.engine();
      nudges.webhooks();
    },
  });
  const onProbesDue = (): void => nudges.watch();
  const watch = openWatch({ db, clock, log, rng, probes, link, instances, onProbesDue, onEndpointsChanged });
  return { launch, endpoints, decoys, reservations, instances, watch };
}

function openModels(core: Core, settings: Settings, below: { ledger: Ledger; blobs: Blobs; nudges: Nudges }) {
  const { db, clock, ids, log } = core;
  const { ledger, blobs, nudges } = below;
  const catalog = openCatalog(settings.models);
  const openMax = (): OpenMax => ({
    perKey: settings.openInferenceRequestsPerKey,
    perOrg: settings.openInferenceRequestsPerOrg,
  });
  const gateway = openGateway({ db, clock, ids, log, ledger, catalog, openMax });
  const videos = openVideos({
    db,
    clock,
    ids,
    log,
    ledger,
    catalog,
    blobs,
    openPerOrgMax: () => settings.openVideosPerOrg,
    bytesMax: settings.videoBytesMax,
    nudge: () => nudges.engine(),
  });
  const { fileBytesMax: bytesMax, fileBytesPerOrg: bytesPerOrgMax } = settings;
  return { catalog, gateway, videos, files: openFiles({ db, clock, ids, blobs, bytesMax, bytesPerOrgMax }) };
}
