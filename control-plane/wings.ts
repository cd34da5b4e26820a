// Opens the rooms of each wing in their order. Rooms get the functions of later rooms that they call as parameters.
import { throttledLog } from '../shared/log.ts';
import { type Accounts } from './base/accounts/accounts.ts';
import { type SshKeys } from './base/accounts/ssh-keys.ts';
import type { Blobs } from './base/blobs/blobs.ts';
import { tellMissing } from './base/blobs/missing.ts';
import type { PresignedUrls } from './base/blobs/presigned-urls.ts';
import type { UrlKeys } from './base/blobs/url-keys.ts';
import type { Members } from './base/db/members.ts';
import { type Events } from './base/events/events.ts';
import type { Mail } from './base/mail/mail.ts';
import { type Operations } from './base/operations/operations.ts';
import type { Outbound } from './base/outbound/outbound.ts';
import { openCorrections } from './money/corrections/corrections.ts';
import { type Deposits, openDeposits } from './money/deposits/deposits.ts';
import { openCredits } from './money/credits/credits.ts';
import { type Ledger, openLedger } from './money/ledger/ledger.ts';
import { type Metering, openMetering } from './money/metering/metering.ts';
import { machinesThatServed } from './money/metering/store.ts';
import type { PayingDeps } from './money/payouts/making.ts';
import { openPayouts } from './money/payouts/payouts.ts';
import { type Presence, openPresence, openLinkRecords } from './fleet/link/presence.ts';
import { type Link, openLink } from './fleet/link/link.ts';
import { openArrival } from './fleet/link/arrival.ts';
import { type CloneTokens, openCloneTokens } from './fleet/link/clone-tokens.ts';
import { findMachine, findSupplier } from './fleet/supply/store.ts';
import { type FleetMetrics, openFleetMetrics } from './fleet/metrics/metrics.ts';
import { openSupply, type Supply } from './fleet/supply/supply.ts';
import { openWorkloads, type Workloads } from './fleet/workloads/workloads.ts';
import { type Endpoints, openEndpoints } from './rental/endpoints/endpoints.ts';
import { openReservations, type Reservations, type ReservationsDeps } from './rental/reservations/reservations.ts';
import { type Instances, openInstances } from './rental/instances/instances.ts';
import type { Probes } from './rental/instances/steps.ts';
import { findRental } from './rental/instances/store.ts';
import type { Images } from './rental/launch/images.ts';
import { type LaunchRoom, openLaunch } from './rental/launch/launch.ts';
import type { ModelHub } from './rental/launch/model-hub.ts';
import { type Decoys, openDecoys } from './rental/outages/decoys.ts';
import { downSince, startSeries } from './rental/outages/store.ts';
import { logIn, newLoginKey, openProbes } from './rental/outages/probe.ts';
import { openQuiet, type OwnQuiet, type Quiet } from './rental/instances/quiet.ts';
import { type Notices, openNotices } from './rental/notices/notices.ts';
import { openWatch, type Watch } from './rental/outages/watch.ts';
import { openWebhooks, type Webhooks } from './rental/webhooks/webhooks.ts';
import { type Catalog, openCatalog } from './models/catalog/catalog.ts';
import { type Files, openFiles } from './models/files/files.ts';
import { type FineTuningRoom, openFineTuning } from './models/finetuning/finetuning.ts';
import { type Gateway, openGateway } from './models/gateway/gateway.ts';
import type { OpenMax } from './models/gateway/requests.ts';
import { openReplicas, type Replicas } from './models/replicas/replicas.ts';
import { openVideos, type Videos } from './models/videos/videos.ts';
import type { Core, Nudges, Settings } from './settings.ts';
import { clockSteps, type OwnOutages, openOwnOutages } from './rental/outages/own-outages.ts';
import { type Live, openLive } from './rental/journal/live.ts';
import { type Logs, openLogs } from './rental/journal/logs.ts';

/** Functions and services outside of the rooms. Tests set `probes`, `logIn` and `openStream` to replace the network. */
export interface Outside {
  nudges: Nudges;
  /** False while the disk of the database is full. */
  hasRoom(): boolean;
  members: Members;
  mail: Mail;
  webhookOutbound: Outbound;
  images: Pick<Images, 'verify' | 'pullLogin' | 'mayAsk'>;
  modelHub: Pick<ModelHub, 'sizeOf'>;
  storage: { blobs: Blobs; presignedUrls: PresignedUrls; urlKeys: UrlKeys };
  /** Whether this process listens at the public SSH port of the instance. */
  listens(instanceId: string): boolean;
  /** True while this process ends so slowly that a launch could not wait for the next process to open its public port. */
  endsSlowly(): boolean;
  probes?: Probes;
  logIn?: typeof logIn;
  openStream?: Link['openStream'];
}

/** A machine counts as having served other customers if they were charged for at least this time. */
const SERVED_MS_MIN = 3_600_000;

export function openMoney(core: Core, settings: Settings, { events, nudges }: { events: Events; nudges: Nudges }) {
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
  const corrections = openCorrections({ db, clock, ids, ledger });
  const { keepRefundsWithinCharge } = corrections;
  const metering = openMetering({
    ...core,
    ledger,
    credits,
    launchHoldMinutes,
    limitOf: async (query, instanceId) => (await findRental(query, instanceId))?.auto_terminate_ms ?? null,
    keepRefundsWithinCharge,
  });
  const supplierStatus: PayingDeps['supplierStatus'] = async (query, id) => (await findSupplier(query, id))?.status;
  const payouts = openPayouts({ ...core, ...settings.payouts, ledger, metering, events, delayMs, supplierStatus });
  const deposits: Deposits = openDeposits({
    db,
    clock,
    ids,
    log,
    ledger,
    events,
    settings: settings.deposits,
    nudge: () => nudges.engine(),
  });
  return { ledger, credits, metering, payouts, corrections, deposits };
}

/** Functions of later rooms that the fleet calls. */
interface AboveFleet extends Pick<Instances, 'noteObserved' | 'noteGpus' | 'pullLogin'> {
  onLife: Watch['onLife'];
  onHolder: Watch['onHolder'];
  jobUrl: FineTuningRoom['urlFor'];
  onJobEvents: FineTuningRoom['takeEvents'];
  events: Events;
  nudges: Nudges;
}

export interface Fleet {
  supply: Supply;
  workloads: Workloads;
  fleetMetrics: FleetMetrics;
  link: Link;
  presence: Presence;
  cloneTokens: CloneTokens;
}

export function openFleet(house: Core, settings: Settings, above: AboveFleet): Fleet {
  const { db, clock, ids, rng, sealing } = house;
  const { nudges, events, noteObserved: onChange, noteGpus: onGpus, pullLogin, onLife, onHolder } = above;
  const { jobUrl, onJobEvents } = above;
  // Hosts are not trusted, so the log lines that they can cause are limited.
  const log = throttledLog(house.log, clock);
  const { diskPriceUcentsPerGbHour, platformFeeBps } = settings;
  const supply = openSupply({ db, clock, ids, log, events, onGpus, diskPriceUcentsPerGbHour, platformFeeBps });
  const isContested = (machineId: string): boolean => link.isContested(machineId);
  const isUp = (machineId: string): boolean => link.isUp(machineId);
  const push = (machineId: string): void => link.push(machineId);
  const workloads = openWorkloads({ db, clock, log, sealing, supply, onChange, isContested, isUp, push });
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
        await supply.loseLink(machineId, isUp);
        await records.down(machineId, isUp);
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
      onMetrics: (machineId, sample) => fleetMetrics.take(machineId, sample),
      pullLogin,
      jobUrl,
      onJobEvents,
      onLife,
      onHolder,
      desired: (machineId) => workloads.desired(machineId),
    },
  });
  const fleetMetrics = openFleetMetrics({ db, clock, link });
  const presence = openPresence({ clock, log, supply, link, cloneTokens });
  return { supply, workloads, fleetMetrics, link, presence, cloneTokens };
}

/** A function of a later room that the rental wing calls. */
export interface AboveRental {
  skipJobs: FineTuningRoom['skip'];
}

interface BelowRental extends Fleet, AboveRental {
  accounts: Pick<Accounts, 'refuseKey'>;
  outside: Outside;
  sshKeys: SshKeys;
  events: Events;
  operations: Operations;
  ledger: Ledger;
  metering: Metering;
}

export interface Rental {
  quiet: OwnQuiet;
  launch: LaunchRoom;
  endpoints: Endpoints;
  decoys: Decoys;
  reservations: Reservations;
  instances: Instances;
  watch: Watch;
  ownOutages: OwnOutages;
  logs: Logs;
  live: Live;
  webhooks: Webhooks;
  notices: Notices;
}

export function openRental(core: Core, settings: Settings, below: BelowRental): Rental {
  const { db, clock, ids, rng, log, sealing } = core;
  const { outside, accounts, sshKeys, events, operations, metering, supply, workloads, link } = below;
  const { nudges, images, modelHub } = outside;
  const { hostnameOf, sshPorts: ports, sshHost, reservationLeadMs: leadMs, platformFeeBps, appSite } = settings;
  const quiet = openQuiet(clock);
  const launch = openLaunch({ db, clock, ids, log, sealing, images, modelHub, presets: settings.presets });
  const endpoints = openEndpoints({ db, clock, ids, sealing, hostnameOf, ports });
  const probes = outside.probes ?? openProbes({ db, clock, endpoints, link, sshHost, listens: outside.listens });
  const decoys = openRentalDecoys(core, below, endpoints);
  const describeInstances: ReservationsDeps['describeInstances'] = (query, contracts) =>
    instances.ofReservations(query, contracts);
  const reservations = openReservations({ db, clock, ids, log, events, supply, leadMs, quiet, describeInstances });
  const isAnswering = (machineId: string): boolean => link.lifeOf(machineId, '').isAnswering;
  const onEndpointsChanged = (): void => nudges.edge();
  const instances: Instances = openInstances({
    ...core,
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
    quiet,
    keepLog: (instance) => history.logs.keep(instance),
    clockSteps,
    endsSlowly: outside.endsSlowly,
    refuseKey: accounts.refuseKey,
    openLaunchesMax: () => settings.openLaunchesPerOrg,
    unpaidGpuHoursMax: settings.unpaidGpuHoursPerOrg,
    onRunning: async (tx, started) => {
      await startSeries(tx, started);
      await decoys.start(tx, started);
      await supply.countLaunch(tx, started.machineId, false);
    },
    downSince: (tx, instanceId, nowMs) => downSince(tx, instanceId, { isAnswering, nowMs }),
    assertSshKeys: (tx, orgId, keyIds) => sshKeys.assertKeysOfOrg(tx, orgId, keyIds),
    runnable: launch.runnable,
    imagePullLogin: launch.pullLogin,
    push: (machineId) => link.push(machineId),
    onEndpointsChanged,
    nudge: () => nudges.engine(),
    onEvents: () => nudges.webhooks(),
  });
  const onProbesDue = (): void => nudges.watch();
  const watch = openWatch({ db, clock, log, rng, probes, link, instances, quiet, onProbesDue, onEndpointsChanged });
  const history = openHistory(core, settings, { ...below, watch, quiet });
  return { quiet, launch, endpoints, decoys, reservations, instances, watch, ...history };
}

function openRentalDecoys(
  { db, clock, rng, log, sealing }: Core,
  { outside, sshKeys, supply, link }: BelowRental,
  endpoints: Endpoints,
): Decoys {
  return openDecoys({
    db,
    clock,
    log,
    rng,
    sealing,
    endpoints,
    link,
    newKey: newLoginKey,
    logIn: outside.logIn ?? logIn,
    customerKeysOf: (query, { org_id: orgId, request }) => sshKeys.linesOf(query, orgId, request.ssh_key_ids ?? null),
    accuse: supply.accuse,
  });
}

/** Opens the rooms about past events: our own outages, and the events that customers read or are sent. */
function openHistory(
  { db, clock, ids, rng, log, sealing }: Core,
  settings: Settings,
  { events, ledger, link, metering, outside, watch, quiet, skipJobs }: BelowRental & Pick<Rental, 'watch' | 'quiet'>,
): Pick<Rental, 'ownOutages' | 'logs' | 'live' | 'webhooks' | 'notices'> {
  const openStream = outside.openStream ?? link.openStream;
  const { webhookOutbound: outbound, mail } = outside;
  const { webhookMaxAttempts: maxAttempts, origin } = settings;
  return {
    ownOutages: openOwnOutages({ db, clock, log, metering, skipJobs, goodSinceMs: watch.goodSinceMs }),
    logs: openLogs({ db, clock, log, sealing, link: { openStream } }),
    live: openLive({ db, clock, events }),
    webhooks: openWebhooks({ db, clock, ids, log, rng, sealing, outbound, maxAttempts }),
    notices: openNotices({ db, clock, ids, log, ledger, mail, origin, quiet }),
  };
}

export interface BelowModels extends Fleet {
  accounts: Accounts;
  events: Events;
  ledger: Ledger;
  instances: Instances;
  quiet: Quiet;
  openStream: Link['openStream'];
  storage: Outside['storage'];
  members: Outside['members'];
  nudges: Nudges;
}

export interface Models {
  catalog: Catalog;
  replicas: Replicas;
  gateway: Gateway;
  videos: Videos;
  files: Files;
  fineTuning: FineTuningRoom;
}

export function openModels(core: Core, settings: Settings, below: BelowModels): Models {
  const { db, clock, ids, rng, log } = core;
  const { accounts, events, ledger, supply, workloads, link, instances, quiet, openStream, nudges } = below;
  const { members, storage } = below;
  const { blobs } = storage;
  const { refuseKey } = accounts;
  const catalog = openCatalog(settings.models);
  const openMax = (): OpenMax => ({
    perKey: settings.openInferenceRequestsPerKey,
    perOrg: settings.openInferenceRequestsPerOrg,
  });
  const replicas = openReplicas({
    db,
    clock,
    ids,
    rng,
    log,
    ledger,
    catalog,
    instances,
    supply,
    launchHoldMinutes: settings.launchHoldMinutes,
    openStream,
    quiet,
    nudge: () => nudges.engine(),
  });
  const gateway = openGateway({ db, clock, ids, log, ledger, members, catalog, replicas, openMax, refuseKey });
  const videos = openVideos({
    db,
    events,
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
  const fineTuning = openFineTuning({
    ...core,
    ...storage,
    events,
    ledger,
    supply,
    workloads,
    catalog,
    quiet,
    platformFeeBps: settings.platformFeeBps,
    unpaidGpuHoursMax: settings.unpaidGpuHoursPerOrg,
    push: (machineId) => link.push(machineId),
    nudge: () => nudges.engine(),
  });
  const { refuseInUse, quotes } = fineTuning;
  const known = tellMissing(blobs, { files: (keys) => files.contentBlobs(keys) }, log);
  const files: Files = openFiles({ ...core, blobs: known, bytesMax, bytesPerOrgMax, refuseInUse, quotes });
  return { catalog, replicas, gateway, videos, files, fineTuning };
}
