// Creates and connects the rooms of the house in their order. Opens no socket and starts no loop: house.ts does that, and tests drive the
// rooms by hand.
import { throttledLog } from '../shared/log.ts';
import type { Accounts } from './base/accounts/accounts.ts';
import { openSshKeys, type SshKeys } from './base/accounts/ssh-keys.ts';
import type { Blobs } from './base/blobs/blobs.ts';
import type { PresignedUrls } from './base/blobs/presigned-urls.ts';
import type { UrlKeys } from './base/blobs/url-keys.ts';
import { openReadiness } from './base/db/readiness.ts';
import { type Events, openEvents } from './base/events/events.ts';
import type { Mail } from './base/mail/mail.ts';
import { type Operations, openOperations } from './base/operations/operations.ts';
import type { Outbound } from './base/outbound/outbound.ts';
import { openCorrections } from './money/corrections/corrections.ts';
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
import { type Endpoints, openEndpoints } from './rental/endpoints/endpoints.ts';
import { openReservations, type Reservations, type ReservationsDeps } from './rental/reservations/reservations.ts';
import { type Instances, openInstances } from './rental/instances/instances.ts';
import type { Probes } from './rental/instances/steps.ts';
import type { Images } from './rental/launch/images.ts';
import { type LaunchRoom, openLaunch } from './rental/launch/launch.ts';
import type { ModelHub } from './rental/launch/model-hub.ts';
import { type Decoys, openDecoys } from './rental/outages/decoys.ts';
import { downSince, startSeries } from './rental/outages/store.ts';
import { openOwnOutages } from './rental/outages/own-outages.ts';
import { logIn, newProbeKey, openProbes } from './rental/outages/probe.ts';
import { openWatch, type Watch } from './rental/outages/watch.ts';
import { openLogs } from './rental/journal/logs.ts';
import { openWebhooks, type Webhooks } from './rental/webhooks/webhooks.ts';
import { type Catalog, openCatalog } from './models/catalog/catalog.ts';
import { type Files, openFiles } from './models/files/files.ts';
import { type FineTuningRoom, openFineTuning } from './models/finetuning/finetuning.ts';
import { type Gateway, openGateway } from './models/gateway/gateway.ts';
import type { OpenMax } from './models/gateway/requests.ts';
import { openReplicas, type Replicas } from './models/replicas/replicas.ts';
import { openVideos, type Videos } from './models/videos/videos.ts';
import { openIdentity } from './identity.ts';
import type { Changeable, Core, Nudges, Settings } from './settings.ts';

/** What is outside of the rooms. `probes`, `logIn` and `openStream` replace the network in tests. */
interface Outside {
  nudges: Nudges;
  /** False while the disk of the database is full. */
  hasRoom(): boolean;
  mail: Mail;
  webhookOutbound: Outbound;
  images: Pick<Images, 'verify' | 'pullLogin'>;
  modelHub: Pick<ModelHub, 'sizeOf'>;
  storage: { blobs: Blobs; presignedUrls: PresignedUrls; urlKeys: UrlKeys };
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
  const events = openEvents({
    clock,
    ids,
    onAppend: async (tx, event) => {
      await webhooks.noteEvent(tx, event);
      await models.replicas.noteEvent(tx, event);
    },
  });
  const operations = openOperations({ clock, ids });
  const money = openMoney(core, settings, events);
  const { ledger, metering } = money;
  const { accounts, users } = openIdentity(core, settings, { events, ledger, mail: outside.mail });
  const fleet: Fleet = openFleet(core, settings, {
    events,
    nudges,
    noteObserved: (tx, id, observed) =>
      (models.fineTuning.isJob(id) ? models.fineTuning : rental.instances).noteObserved(tx, id, observed),
    noteGpus: (found) => rental.instances.noteGpus(found),
    pullLogin: (machineId, workloadId) => rental.instances.pullLogin(machineId, workloadId),
    jobUrl: (machineId, workloadId, purpose) => models.fineTuning.urlFor(machineId, workloadId, purpose),
    onJobEvents: (machineId, workloadId, events) => models.fineTuning.takeEvents(machineId, workloadId, events),
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
  const openStream = outside.openStream ?? fleet.link.openStream;
  const { blobs } = storage;
  const below: BelowModels = { ...fleet, accounts, ledger, instances: rental.instances, openStream, storage, nudges };
  const models: Models = openModels(core, settings, below);
  return {
    readiness: openReadiness({ db, clock, log, hasRoom: outside.hasRoom }),
    blobs,
    presignedUrls: storage.presignedUrls,
    urlKeys: storage.urlKeys,
    accounts,
    users,
    sshKeys,
    events,
    operations,
    ...money,
    ...fleet,
    ...rental,
    ownOutages: openOwnOutages({ db, clock, log, metering, goodSinceMs: rental.watch.goodSinceMs }),
    logs: openLogs({ db, clock, log, link: { openStream } }),
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
  const payouts = openPayouts({ db, clock, ids, ledger, metering, delayMs });
  return { ledger, credits, metering, payouts, corrections: openCorrections({ db, clock, ids, ledger }) };
}

/** Functions of the rooms above that the fleet calls. */
interface AboveFleet extends Pick<Instances, 'noteObserved' | 'noteGpus' | 'pullLogin'> {
  onLife: Watch['onLife'];
  onHolder: Watch['onHolder'];
  jobUrl: FineTuningRoom['urlFor'];
  onJobEvents: FineTuningRoom['takeEvents'];
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
  const { jobUrl, onJobEvents } = above;
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
      jobUrl,
      onJobEvents,
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

interface BelowModels extends Fleet {
  accounts: Accounts;
  ledger: Ledger;
  instances: Instances;
  openStream: Link['openStream'];
  storage: Outside['storage'];
  nudges: Nudges;
}

interface Models {
  catalog: Catalog;
  replicas: Replicas;
  gateway: Gateway;
  videos: Videos;
  files: Files;
  fineTuning: FineTuningRoom;
}

function openModels(core: Core, settings: Settings, below: BelowModels): Models {
  const { db, clock, ids, rng, log } = core;
  const { accounts, ledger, supply, workloads, link, instances, openStream, nudges } = below;
  const { blobs } = below.storage;
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
    openStream,
    nudge: () => nudges.engine(),
  });
  const gateway = openGateway({ db, clock, ids, log, ledger, catalog, replicas, openMax, refuseKey });
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
  const fineTuning = openFineTuning({
    ...core,
    ...below.storage,
    ledger,
    supply,
    workloads,
    catalog,
    platformFeeBps: settings.platformFeeBps,
    push: (machineId) => link.push(machineId),
    nudge: () => nudges.engine(),
  });
  const { refuseInUse, quotes } = fineTuning;
  const files = openFiles({ db, clock, ids, blobs, bytesMax, bytesPerOrgMax, refuseInUse, quotes });
  return { catalog, replicas, gateway, videos, files, fineTuning };
}
