// The rooms of the house, wired from the ground floor up. Opens no socket and starts no loop: house.ts does, and tests drive by hand.
import type { Clock } from '../shared/clock.ts';
import type { Ids } from '../shared/ids.ts';
import type { Log } from '../shared/log.ts';
import type { Rng } from '../shared/rng.ts';
import { throttledLog } from '../shared/throttled-log.ts';
import { decoysOf, outagesOf, startLooks } from './looks.ts';
import { type Accounts, openAccounts } from './base/accounts/accounts.ts';
import { openSshKeys, type SshKeys } from './base/accounts/ssh-keys.ts';
import { type Books, openBooks } from './books.ts';
import type { Blobs } from './base/blobs/blobs.ts';
import type { Grants } from './base/blobs/grants.ts';
import type { Db } from './base/db/db.ts';
import { type Events, openEvents } from './base/events/events.ts';
import type { Sealing } from './base/http/sealing.ts';
import { openOperations, type Operations } from './base/operations/operations.ts';
import type { Outbound } from './base/outbound/outbound.ts';
import { type Ledger, openLedger } from './money/ledger/ledger.ts';
import type { LossBounds } from './money/credits/bounds.ts';
import { type Credits, openCredits } from './money/credits/credits.ts';
import { type Metering, openMetering } from './money/metering/metering.ts';
import { machinesThatServed } from './money/metering/store.ts';
import { openPayouts, type Payouts } from './money/payouts/payouts.ts';
import { type Absence, openAbsence } from './fleet/link/absence.ts';
import { type Link, openLink } from './fleet/link/link.ts';
import { openLinkNotes } from './fleet/link/notes.ts';
import { openRatchets } from './fleet/link/ratchets.ts';
import { findMachine } from './fleet/supply/store.ts';
import { openSupply, type Supply } from './fleet/supply/supply.ts';
import { openWorkloads, type Workloads } from './fleet/workloads/workloads.ts';
import type { AppSite } from './rental/endpoints/app-address.ts';
import { type Doors, openDoors } from './rental/endpoints/doors.ts';
import { openReservations, type Reservations, type ReservationsDeps } from './rental/reservations/reservations.ts';
import type { Images } from './rental/launch/images.ts';
import { type LaunchRoom, openLaunch } from './rental/launch/launch.ts';
import type { ModelHub } from './rental/launch/model-hub.ts';
import type { Menu } from './rental/launch/runnable.ts';
import type { Decoys } from './rental/outages/decoys.ts';
import { logIn, newProbeKey, openProbes } from './rental/outages/probe.ts';
import type { Probes } from './rental/instances/steps.ts';
import { type Heartbeat, openHeartbeat } from './rental/outages/own-outages.ts';
import { type Logs, openLogs } from './rental/journal/logs.ts';
import { downSince } from './rental/outages/down-since.ts';
import { openWatch, type Watch } from './rental/outages/watch.ts';
import { type Instances, type InstancesDeps, openInstances } from './rental/instances/instances.ts';
import { type Catalog, openCatalog } from './models/catalog/catalog.ts';
import type { CatalogModel } from './models/catalog/models.ts';
import { type Files, openFiles } from './models/files/files.ts';
import { type Gateway, openGateway } from './models/gateway/gateway.ts';
import { openVideos, type Videos } from './models/videos/videos.ts';
import { openWebhooks, type Webhooks } from './rental/webhooks/webhooks.ts';

/** What every room may be given. */
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
  /** From the entry of earnings until they may be paid out. */
  earningsDelayMs: number;
  /** From when GPUs are set aside for a reservation contract until it begins. */
  reservationLeadMs: number;
  /** What may be given away in a day without the operator. */
  lossBounds: LossBounds;
  openLaunchesPerOrg: number;
  /** GPU hours that launches of one organisation may hold without running, in any 24 hours. */
  unpaidGpuHoursPerOrg: number;
  diskPriceUcentsPerGbHour: bigint;
  /** The host name that customers reach an instance at. */
  hostnameOf(instanceId: string): string;
  /** Where applications are served; undefined where they are not. */
  appSite: AppSite | undefined;
  sshPorts: { first: number; last: number };
  /** Where probes find the public SSH ports. */
  sshHost: string;
  /** What can be launched without an own image. */
  menu: Menu;
  /** Of one webhook delivery. */
  webhookMaxAttempts: number;
  /** What can be called. */
  models: readonly CatalogModel[];
  /** Inference requests of one API key that may be open at once. */
  openInferenceRequestsPerKey: number;
  /** Of one organisation. */
  openVideosPerOrg: number;
  /** Of the file of a video. */
  videoBytesMax: number;
  /** Of one uploaded file, and of all of one organisation. */
  fileBytesMax: number;
  fileBytesPerOrg: number;
}

/** What the operator may change while the process runs. Rooms read it at each use and keep none of it. */
export type Changeable = Pick<
  Settings,
  'menu' | 'models' | 'openLaunchesPerOrg' | 'openInferenceRequestsPerKey' | 'openVideosPerOrg'
>;

/** What rooms ask of the processes around them, after a commit. */
export interface Nudges {
  engine(): void;
  edge(): void;
  watch(): void;
  webhooks(): void;
}

/** What lies outside of the rooms; `probes`, `logIn` and `openStream` replace the network if there is none. */
interface Outside {
  nudges: Nudges;
  webhookOutbound: Outbound;
  images: Pick<Images, 'verify' | 'pullLogin'>;
  modelHub: Pick<ModelHub, 'weigh'>;
  storage: Pick<Rooms, 'blobs' | 'grants'>;
  probes?: Probes;
  logIn?: typeof logIn;
  openStream?: Link['openStream'];
}

export interface Rooms {
  books: Books;
  /** All at once, from the next use on. */
  reload(next: Changeable): void;
  blobs: Blobs;
  grants: Grants;
  accounts: Accounts;
  sshKeys: SshKeys;
  events: Events;
  operations: Operations;
  ledger: Ledger;
  credits: Credits;
  metering: Metering;
  payouts: Payouts;
  supply: Supply;
  link: Link;
  workloads: Workloads;
  launch: LaunchRoom;
  doors: Doors;
  reservations: Reservations;
  instances: Instances;
  watch: Watch;
  decoys: Decoys;
  absence: Absence;
  logs: Logs;
  heartbeat: Heartbeat;
  webhooks: Webhooks;
  catalog: Catalog;
  gateway: Gateway;
  videos: Videos;
  files: Files;
}

/** A machine that was charged to others for so long has served them. */
const SERVED_MS_MIN = 3_600_000;

export function openRooms(core: Core, given: Settings, outside: Outside): Rooms {
  // A copy: what is changed here is nobody else's.
  const settings = { ...given, menu: { ...given.menu } };
  const rooms = openAll(core, settings, outside);
  return {
    ...rooms,
    books: openBooks(core),
    reload: ({ menu, ...next }) => {
      Object.assign(settings, next);
      Object.assign(settings.menu, menu);
      rooms.catalog.replace(next.models);
    },
  };
}

type Describe = ReservationsDeps['describeInstances'];

/** Settings that are `Changeable` are read at each use. */
function openAll(core: Core, settings: Settings, outside: Outside): Omit<Rooms, 'reload' | 'books'> {
  const sshKeys = openSshKeys(core);
  const events = openEvents({ ...core, onAppend: (tx, event) => webhooks.noteEvent(tx, event) });
  const operations = openOperations(core);
  const money = openMoney(core, settings, events);
  const nudges = nudgesAfterChange(outside.nudges);
  const fleet = openFleet(core, settings, {
    events,
    nudges: outside.nudges,
    noteObserved: (tx, instanceId, observed) => instances.noteObserved(tx, instanceId, observed),
    noteGpus: (tx, workloadId, fault) => instances.noteGpus(tx, workloadId, fault),
    pullLogin: (machineId, workloadId) => instances.pullLogin(machineId, workloadId),
    watch: () => watch,
  });
  const launch = openLaunch({ ...core, ...outside, menu: settings.menu });
  const doors = openDoors({ ...core, newProbeKey, hostnameOf: settings.hostnameOf, ports: settings.sshPorts });
  const probes = outside.probes ?? openProbes({ ...core, doors, link: fleet.link, sshHost: settings.sshHost });
  const decoys = decoysOf(core, { ...fleet, doors, sshKeys, logIn: outside.logIn ?? logIn });
  const { reservationLeadMs: leadMs } = settings;
  const describeInstances: Describe = (query, ids) => instances.ofReservations(query, ids);
  const reservations = openReservations({ ...core, ...fleet, events, leadMs, describeInstances });
  const answers = (machineId: string): boolean => fleet.link.lifeOf(machineId, '').isAnswering;
  const rental: InstancesDeps = {
    ...core,
    events,
    operations,
    metering: money.metering,
    ...fleet,
    doors,
    reservations,
    ...termsOf(settings),
    onRunning: (tx, started) => startLooks(tx, started, decoys),
    downSince: (tx, instanceId, nowMs) => downSince(tx, instanceId, { isAnswering: answers, nowMs }),
    assertSshKeys: (tx, orgId, ids) => sshKeys.assertKeysOfOrg(tx, orgId, ids),
    runnable: launch.runnable,
    imagePullLogin: launch.pullLogin,
    probes,
    push: (machineId) => fleet.link.push(machineId),
    ...nudges,
  };
  const instances: Instances = openInstances(rental);
  const watch: Watch = openWatch({ ...core, ...fleet, ...nudges, probes, outages: outagesOf(rental) });
  const webhooks: Webhooks = openWebhooks({
    ...core,
    outbound: outside.webhookOutbound,
    maxAttempts: settings.webhookMaxAttempts,
  });
  return {
    ...outside.storage,
    accounts: openAccounts(core),
    sshKeys,
    events,
    operations,
    ...money,
    ...fleet,
    launch,
    doors,
    reservations,
    instances,
    watch,
    decoys,
    logs: openLogs({ ...core, link: { openStream: outside.openStream ?? fleet.link.openStream } }),
    heartbeat: openHeartbeat({ ...core, ...money }),
    webhooks,
    ...openModels(core, settings, { ...money, ...outside.storage, nudges: outside.nudges }),
  };
}

function nudgesAfterChange(nudges: Nudges): Pick<InstancesDeps, 'onDoorsChanged' | 'nudge'> & { onLooksDue(): void } {
  return {
    onLooksDue: () => nudges.watch(),
    onDoorsChanged: () => nudges.edge(),
    nudge: () => {
      nudges.engine();
      nudges.webhooks();
    },
  };
}

/** What a rental costs and how many of them there may be. */
function termsOf(settings: Settings) {
  const { platformFeeBps, unpaidGpuHoursPerOrg, appSite } = settings;
  return {
    platformFeeBps,
    openLaunchesMax: () => settings.openLaunchesPerOrg,
    unpaidGpuHoursMax: unpaidGpuHoursPerOrg,
    appSite,
  };
}

function openMoney(
  core: Core,
  settings: Settings,
  events: Events,
): Pick<Rooms, 'ledger' | 'credits' | 'metering' | 'payouts'> {
  const ledger = openLedger(core);
  const credits = openCredits({
    ...core,
    ledger,
    events,
    bounds: settings.lossBounds,
    servedOthers: (query, orgId, sinceMs) =>
      machinesThatServed(query, orgId, { sinceMs, nowMs: core.clock.now(), forMs: SERVED_MS_MIN }),
  });
  const metering = openMetering({ ...core, ledger, credits, launchHoldMinutes: settings.launchHoldMinutes });
  return {
    ledger,
    credits,
    metering,
    payouts: openPayouts({ ...core, ledger, metering, delayMs: settings.earningsDelayMs }),
  };
}

function openModels(
  core: Core,
  settings: Settings,
  below: Pick<Rooms, 'ledger' | 'blobs'> & { nudges: Nudges },
): Pick<Rooms, 'catalog' | 'gateway' | 'videos' | 'files'> {
  const catalog = openCatalog(settings.models);
  const gateway = openGateway({
    ...core,
    ...below,
    catalog,
    openPerKeyMax: () => settings.openInferenceRequestsPerKey,
  });
  const videos = openVideos({
    ...core,
    ...below,
    catalog,
    openPerOrgMax: () => settings.openVideosPerOrg,
    bytesMax: settings.videoBytesMax,
    nudge: () => below.nudges.engine(),
  });
  const { fileBytesMax: bytesMax, fileBytesPerOrg: bytesPerOrgMax } = settings;
  return { catalog, gateway, videos, files: openFiles({ ...core, ...below, bytesMax, bytesPerOrgMax }) };
}

/** What the fleet asks of the rooms above it. */
interface AboveFleet extends Pick<Instances, 'noteObserved' | 'noteGpus' | 'pullLogin'> {
  watch(): Pick<Watch, 'onLife' | 'onHolder'>;
  events: Events;
  nudges: Nudges;
}

function openFleet(
  house: Core,
  settings: Settings,
  above: AboveFleet,
): Pick<Rooms, 'supply' | 'workloads' | 'link' | 'absence'> {
  const { nudges, events, noteObserved: onChange, noteGpus: onGpus, pullLogin } = above;
  // Hosts are strangers: what they make us log is counted.
  const core = { ...house, log: throttledLog(house.log, house.clock) };
  const supply = openSupply({ ...core, events, onGpus, diskPriceUcentsPerGbHour: settings.diskPriceUcentsPerGbHour });
  const workloads = openWorkloads({
    ...core,
    supply,
    onChange,
    isContested: (machineId) => link.isContested(machineId),
  });
  const notes = openLinkNotes(core);
  const machineKey = async (machineId: string): Promise<string | undefined> =>
    (await findMachine(core.db.read, machineId))?.public_key ?? undefined;
  const link: Link = openLink({
    ...core,
    machineKey,
    ratchets: openRatchets({ ...core, machineKey }),
    handlers: {
      onUp: async (machineId, hello, clientIp) => {
        await workloads.meet(machineId, hello.held);
        await notes.up(hello, clientIp);
        await supply.reportInventory(machineId, hello.inventory);
        await supply.setOnline(machineId, true);
        nudges.engine();
      },
      onCopy: async (machineId) => void (await supply.setCopied(machineId, true)),
      onDown: async (machineId) => {
        await supply.setOnline(machineId, false);
        await notes.down(machineId);
      },
      onObserved: async (machineId, message) => {
        await workloads.observe(machineId, message);
        nudges.engine();
      },
      onInventory: async (machineId, inventory) => {
        await supply.reportInventory(machineId, inventory);
        nudges.engine();
      },
      pullLogin,
      onLife: (machineId) => above.watch().onLife(machineId),
      onHolder: (machineId, message) => above.watch().onHolder(machineId, message),
      desired: (machineId) => workloads.desired(machineId),
    },
  });
  return { supply, workloads, link, absence: openAbsence({ ...core, supply, link }) };
}
