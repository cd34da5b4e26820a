// Starts and stops the control plane. It opens the database, the rooms, the sockets and the loops, and closes them in reverse order.
import { type Clock, systemClock } from '../shared/clock.ts';
import { createIds } from '../shared/ids.ts';
import { fail, messageOf } from '../shared/errors.ts';
import type { LoopStatus } from '../shared/loop.ts';
import type { Log } from '../shared/log.ts';
import { ucentsFromDollars } from '../shared/money.ts';
import { systemRng } from '../shared/rng.ts';
import { VERSION } from '../shared/version.ts';
import type { Fields } from './base/http/operator.ts';
import { openAdmin } from './admin/admin.ts';
import { openAudit } from './admin/audit.ts';
import type { Blobs } from './base/blobs/blobs.ts';
import { openDiskBlobs } from './base/blobs/local-disk.ts';
import { type PresignedUrls, openPresignedUrls, openUrlKeys, type UrlKeys } from './base/blobs/presigned-urls.ts';
import { openS3Blobs } from './base/blobs/s3.ts';
import type { S3Settings } from './base/blobs/s3-requests.ts';
import { openCursors } from './base/http/cursors.ts';
import { addMeasures, type Metrics, openMetrics } from './base/http/metrics.ts';
import { BALLAST_BYTES, openBallast } from './base/db/ballast.ts';
import { assertSecretFits, openSealing } from './base/http/sealing.ts';
import { type DiskUse, diskUse } from './base/db/readiness.ts';
import type { Http, HttpDeps } from './base/http/server.ts';
import { type MailSettings, openMail } from './base/mail/mail.ts';
import { openOutbound, type Outbound } from './base/outbound/outbound.ts';
import { openSystemd, type Systemd } from './base/systemd/systemd.ts';
import { type Brings, bringsOf, brought } from './brings.ts';
import {
  blobsDirectory,
  type Config,
  hostnameOf,
  mailSettingsOf,
  oidcSettingsOf,
  readSecret,
  s3Settings,
  serviceManager,
} from './config.ts';
import { openConsole } from './console/console.ts';
import { openManual } from './docs/manual.ts';
import { type Foundation, openFoundation } from './foundation.ts';
import { type Certificates, type Listeners, openCertificates, openListeners } from './listeners.ts';
import { type Running, startLoops, startWatchdog } from './loops.ts';
import { depositSettings } from './money/deposits/settings.ts';
import { readModels } from './models/catalog/models.ts';
import { readEnvironments } from './rental/launch/environments.ts';
import { openImages } from './rental/launch/images.ts';
import { openModelHub } from './rental/launch/model-hub.ts';
import { readTemplates } from './rental/launch/templates.ts';
import type { PrivateRegistry } from './rental/launch/registry.ts';
import { openRooms, type Rooms } from './rooms.ts';
import type { Core, Nudges, Settings } from './settings.ts';

/** Probes use this address if the SSH ports listen on every address. */
const LOOPBACK = '127.0.0.1';
/** A launch has more time to start than such a stop and the next start take, so it is accepted meanwhile. */
const QUICK_STOP_SECONDS_MAX = 60;
const MIB = 1024 ** 2;
const GIB = 1024 ** 3;

export interface House {
  /** Opens the sockets and starts the loops. */
  start(): Promise<{ port: number }>;
  /** `fn` is called when another control plane has taken over the database. This process must then end at once. */
  onLost(fn: () => void): void;
  /** The operator's routes without a socket, for commands while the daemon is stopped. */
  readonly admin: Http;
  /**
   * Drains streams into instances for `drain_seconds`, stops accepting, lets work in progress finish, disconnects agents, closes the
   * database.
   */
  close(): Promise<void>;
}

/** @throws DbError `database_in_use` if another control plane runs on this database */
export async function openHouse(config: Config, log: Log, readAgain: () => Config = () => config): Promise<House> {
  const clock = systemClock();
  const rng = systemRng();
  const ids = createIds(clock, rng);
  // Reads the operator's files first, so that a mistake in them is reported before anything is created.
  const settings = settingsOf(config);
  const certificates = openCertificates(config, log);
  const secret = readSecret(config, rng);
  const stores = { mail: mailSettingsOf(config), s3: s3Settings(config) };
  const outside = { clock, rng, ids, log, sealing: openSealing(secret, ids) };
  const metrics = openMetrics();
  const foundation = await openOwnFoundation(config, { ...outside, onCommit: metrics.observeCommit });
  try {
    return houseOn(foundation, config, { outside, metrics, settings, certificates, secret, stores, readAgain });
  } catch (error) {
    // A process that keeps the lease would not end, and would keep others from starting.
    await foundation.close();
    throw error;
  }
}

interface Read {
  outside: Omit<Core, 'db'>;
  metrics: Metrics;
  settings: Settings;
  certificates: Certificates;
  secret: Buffer;
  stores: Stores;
  readAgain(): Config;
}

/** Settings with passwords that files of the operator contain. Undefined without such a server. */
interface Stores {
  mail: MailSettings | undefined;
  s3: S3Settings | undefined;
}

function houseOn(foundation: Ground, config: Config, read: Read): House {
  const { outside, metrics, settings, certificates, secret, stores, readAgain } = read;
  const { clock, log } = outside;
  const { hasRoom } = foundation;
  const audit = openAudit({ ...outside, db: foundation.db });
  const core: Core = { ...outside, db: audit.db };
  let running: Running | undefined;
  const nudges = nudgesOf(() => running);
  const services = openServices(config, { secret, ...stores }, core);
  const listens = (instanceId: string): boolean => listeners.publicPorts.listens(instanceId);
  let endsSlowly = false;
  const rooms = openRooms(core, settings, { nudges, hasRoom, listens, endsSlowly: () => endsSlowly, ...services });
  const brings = bringsOf(core, rooms, {
    cursors: openCursors(secret),
    keep: config.retention,
    audit,
    metrics,
    manual: openManual(),
    console: openConsole(),
    loops: () => statusesOf(running),
    driven: () => running?.engine.driven() ?? new Map(),
    ...startOf(config, { clock, foundation }),
    reload: async () => reloadSettings(readAgain, { rooms, listeners }, log),
  });
  const web: HttpDeps = {
    ...core,
    metrics,
    authenticate: rooms.accounts.authenticate,
    authenticateSession: rooms.users.sessions.authenticate,
    ready: async () => (running === undefined ? ['still starting'] : rooms.readiness.check()),
    hasRoom,
  };
  const admin = openAdmin(brought(brings, 'operatorRoutes'), audit, web);
  const systemd = openSystemd(serviceManager(), core);
  const listeners = openListeners(config, { core, rooms, brings, web, audit, certificates, epoch: foundation.epoch });
  addMeasures(metrics.registry, brought([...brings, listeners.brings], 'measures'));

  return {
    admin,
    onLost: foundation.onLost,
    start: async () => {
      await rooms.endpoints.prepare();
      await listeners.publicPorts.sync();
      // After a long outage of our own, or the restore of a backup, the host states in the database are too old to rely on.
      if (await rooms.ownOutages.beat()) await rooms.supply.setAllOffline();
      running = startLoops(core, [...brings, listeners.brings]);
      const { alive, alivePeriodMs } = systemd;
      if (alivePeriodMs !== undefined) startWatchdog(core, running, { alive, alivePeriodMs });
      await admin.listen({ socketPath: config.admin_socket });
      const { port } = await listeners.listen();
      const served = { version: VERSION, host: config.listen.host, port, admin_socket: config.admin_socket };
      log.info(served, 'the control plane serves');
      await systemd.ready();
      return { port };
    },
    close: async () => {
      endsSlowly = config.drain_seconds > QUICK_STOP_SECONDS_MAX;
      await drain(running, { systemd, listeners }, config.drain_seconds * 1_000);
      await closeRooms(brings, running, async () => listeners.closeWeb().then(() => admin.close()));
      await services.images.close();
      await services.modelHub.close();
      await foundation.close();
    },
  };
}

/** Values of this start that operators see. `disk` is undefined with PostgreSQL, whose disk this process cannot measure. */
function startOf({ database }: Config, { clock, foundation }: { clock: Clock; foundation: Foundation }) {
  const disk = 'sqlite' in database ? (): Promise<DiskUse> => diskUse(database.sqlite) : undefined;
  return { startedMs: clock.now(), epoch: foundation.epoch, disk };
}

interface Ground extends Foundation {
  /** False while the disk of the database is full. The disk of a PostgreSQL server is its operator's responsibility. */
  hasRoom(): boolean;
}

/** @throws Error if the database was written with another secret */
async function openOwnFoundation(
  { database }: Config,
  deps: Parameters<typeof openFoundation>[1] & Pick<Core, 'sealing'>,
): Promise<Ground> {
  const ballast = 'sqlite' in database ? openBallast(`${database.sqlite}.ballast`, BALLAST_BYTES, deps) : undefined;
  const foundation = await openFoundation(database, { ...deps, makeRoom: ballast?.release });
  await assertSecretFits(foundation.db, deps.sealing).catch(async (error: unknown) => {
    await foundation.close();
    throw error;
  });
  await ballast?.restore();
  return {
    ...foundation,
    hasRoom: ballast?.hasRoom ?? ((): boolean => true),
    close: () => {
      ballast?.close();
      return foundation.close();
    },
  };
}

/** Reads all files before it changes anything. Other changes of the configuration apply after the next start. */
function reloadSettings(
  readAgain: () => Config,
  { rooms, listeners }: { rooms: Rooms; listeners: Listeners },
  log: Log,
): Fields {
  let config: Config;
  let next: Settings;
  try {
    config = readAgain();
    next = settingsOf(config);
  } catch (error) {
    log.error({ detail: messageOf(error) }, 'the files of the operator have a mistake; nothing was changed');
    return fail('validation_failed', `Nothing was changed. ${messageOf(error)}`);
  }
  rooms.reload(next);
  listeners.reload(config);
  const now = {
    models: next.models.length,
    templates: next.presets.templates.size,
    frameworks: Object.keys(next.presets.environments.frameworks).length,
    sign_up: next.signUpPolicy,
    open_launches_per_org: next.openLaunchesPerOrg,
    open_inference_requests_per_key: next.openInferenceRequestsPerKey,
    open_inference_requests_per_org: next.openInferenceRequestsPerOrg,
    open_videos_per_org: next.openVideosPerOrg,
    ...config.rate_limits,
  };
  log.info(now, 'models, templates, environments and limits were read again');
  return now;
}

async function drain(
  running: Running | undefined,
  { systemd, listeners }: { systemd: Systemd; listeners: Listeners },
  drainMs: number,
): Promise<void> {
  if (running !== undefined) await systemd.stopping(drainMs);
  const ended = running?.loops.filter(({ endsBeforeDrain }) => endsBeforeDrain) ?? [];
  await Promise.all(ended.map(({ loop }) => loop.stop()));
  await listeners.drain(drainMs);
}

/** Closes the rooms in reverse order. Work in progress ends while the API and the operator's socket close. */
async function closeRooms(
  brings: readonly Brings[],
  running: Running | undefined,
  closeSockets: () => Promise<void>,
): Promise<void> {
  for (const room of brings) await room.leave?.();
  await Promise.all([closeSockets(), ...brings.map((room) => room.finish?.())]);
  await Promise.all(running?.loops.map(({ loop }) => loop.stop()) ?? []);
  await running?.engine.stop();
  for (const room of brings.toReversed()) await room.close?.();
}

function statusesOf(running: Running | undefined): LoopStatus[] {
  if (running === undefined) return [];
  return [running.engine.loop, ...running.loops.map(({ loop }) => loop)].map((loop) => loop.status());
}

/** The services outside of this process that rooms use, except hosts. */
function openServices(config: Config, { secret, mail, s3 }: Stores & { secret: Buffer }, core: Core) {
  return {
    mail: openMail(mail, core),
    webhookOutbound: openWebhookOutbound(config, core.clock),
    images: openImages(privateRegistriesOf(config), core),
    modelHub: openModelHub(config.model_hub_url, core),
    storage: openStorage(config, { secret, s3 }, core),
  };
}

function openStorage(
  config: Config,
  { secret, s3 }: Pick<Stores, 's3'> & { secret: Buffer },
  core: Core,
): { blobs: Blobs; presignedUrls: PresignedUrls; urlKeys: UrlKeys } {
  const { percent, gib } = config.disk_reserve;
  const reserve = { share: percent / 100, bytes: gib * GIB };
  const urlKeys = openUrlKeys(core);
  const presignedUrls = openPresignedUrls({ secret, baseUrl: config.base_url, keys: urlKeys });
  const blobs =
    s3 === undefined
      ? openDiskBlobs(blobsDirectory(config), { ...core, reserve, presignedUrls })
      : openS3Blobs(s3, core);
  return { blobs, presignedUrls, urlKeys };
}

/** Does nothing while no loop runs, because the first tick of each loop checks everything. */
function nudgesOf(running: () => Running | undefined): Nudges {
  const nudgeLoop = (name: string): void =>
    running()
      ?.loops.find(({ loop }) => loop.status().name === name)
      ?.loop.nudge();
  return {
    engine: () => running()?.engine.nudge(),
    edge: () => nudgeLoop('edge'),
    watch: () => nudgeLoop('watch'),
    webhooks: () => nudgeLoop('webhooks'),
  };
}

function lossBoundsOf({ loss_bounds: bounds }: Config): Settings['lossBounds'] {
  const ucents = (dollars: number): bigint => ucentsFromDollars(dollars) ?? 0n;
  return {
    orgCreditsUcents: ucents(bounds.credits_per_org),
    supplierCreditsUcents: ucents(bounds.credits_per_supplier),
    supplierPaymentsUcents: ucents(bounds.own_outages_per_supplier),
  };
}

function settingsOf(config: Config): Settings {
  const everywhere = config.ssh.host === '0.0.0.0' || config.ssh.host === '::';
  return {
    origin: new URL(config.base_url).origin,
    signUpPolicy: config.sign_up,
    oidc: oidcSettingsOf(config),
    platformFeeBps: config.platform_fee_bps,
    launchHoldMinutes: config.launch_hold_minutes,
    earningsDelayMs: config.earnings_delay_hours * 3_600_000,
    payouts: {
      every: config.payouts.every,
      minimumUcents: ucentsFromDollars(config.payouts.minimum) ?? 0n,
      destinationDelayMs: config.payouts.destination_delay_hours * 3_600_000,
    },
    reservationLeadMs: config.reservation_lead_hours * 3_600_000,
    lossBounds: lossBoundsOf(config),
    deposits: config.deposits === undefined ? undefined : depositSettings(config.deposits),
    openLaunchesPerOrg: config.open_launches_per_org,
    unpaidGpuHoursPerOrg: config.unpaid_gpu_hours_per_org,
    diskPriceUcentsPerGbHour: ucentsFromDollars(config.disk_price_per_gb_hour) ?? 0n,
    hostnameOf: (instanceId) => hostnameOf(config, instanceId),
    appSite:
      config.apps === undefined ? undefined : { domain: config.apps.domain, publicPort: config.apps.public_port },
    sshPorts: config.ssh.port_range,
    sshHost: everywhere ? LOOPBACK : config.ssh.host,
    presets: {
      templates: readTemplates(config.templates_file),
      environments: readEnvironments(config.environments_file),
    },
    webhookMaxAttempts: config.webhooks.max_attempts,
    models: readModels(config.models_file),
    openInferenceRequestsPerKey: config.open_inference_requests_per_key,
    openInferenceRequestsPerOrg: config.open_inference_requests_per_org,
    openVideosPerOrg: config.videos.open_per_org,
    videoBytesMax: config.videos.file_mib_max * MIB,
    fileBytesMax: config.files.file_mib_max * MIB,
    fileBytesPerOrg: config.files.mib_per_org * MIB,
  };
}

function openWebhookOutbound({ webhooks }: Config, clock: Clock): Outbound {
  const privateNetworks = webhooks.allowed_networks;
  return openOutbound({ ports: webhooks.allowed_ports, privateNetworks, namedHosts: [] }, { clock });
}

function privateRegistriesOf({ images }: Config): PrivateRegistry[] {
  return images.private_registries.map((registry) => ({ host: registry.host, plainHttp: registry.plain_http }));
}
