// Starts and stops the control plane. It opens the database, the rooms, the sockets and the loops, and closes them in reverse order.
import { type Clock, systemClock } from '../shared/clock.ts';
import { createIds } from '../shared/ids.ts';
import { fail, messageOf } from '../shared/errors.ts';
import type { LoopStatus } from '../shared/loop.ts';
import type { Log } from '../shared/log.ts';
import { systemRng } from '../shared/rng.ts';
import { VERSION } from '../shared/version.ts';
import type { Fields } from './base/http/operator.ts';
import { openAdmin } from './admin/admin.ts';
import { openAudit } from './admin/audit.ts';
import { openCursors } from './base/http/cursors.ts';
import { addMeasures, type Measure, type Metrics, openMetrics } from './base/http/metrics.ts';
import { BALLAST_BYTES, openBallast } from './base/db/ballast.ts';
import { openSecondaries } from './base/db/members.ts';
import { openSealing } from './base/http/sealing.ts';
import { type DiskUse, diskUse } from './base/db/readiness.ts';
import type { Http, HttpDeps } from './base/http/server.ts';
import { openSystemd, type Systemd } from './base/systemd/systemd.ts';
import { type Agreement, openAgreement } from './agreement.ts';
import { type Brings, bringsOf, brought } from './brings.ts';
import { unsharedFiles } from './config-warnings.ts';
import { type Config, serviceManager } from './config.ts';
import { openConsole } from './console/console.ts';
import { openManual } from './docs/manual.ts';
import { type Foundation, openFoundation } from './foundation.ts';
import { type Listeners, openListeners } from './listeners.ts';
import { type OperatorFiles, readFiles, readLatest, settingsOf, waitsForRestart } from './operator-files.ts';
import { allLoops, closeRooms, type Running, startLoops, startWatchdog, stopLoops } from './loops.ts';
import { openRooms, type Rooms } from './rooms.ts';
import { openSecretFile, type SecretFile } from './secret-file.ts';
import { openServices } from './services.ts';
import type { Core, Nudges, Settings } from './settings.ts';
import { openStandby, type Standby } from './standby.ts';
import { openPrimaryStreams } from './primary-streams.ts';

/** A launch has more time to start than such a stop and the next start take, so it is accepted meanwhile. */
const QUICK_STOP_SECONDS_MAX = 60;
/** How often a stop looks whether all requests to models are answered. */
const ANSWERS_LOOK_MS = 50;

export interface House {
  /** Opens the sockets and starts the loops. */
  start(): Promise<{ port: number }>;
  /** `fn` is called when another control plane has taken over the database. This process must then end at once. */
  onLost(fn: () => void): void;
  /** The operator's routes without a socket, for commands while the daemon is stopped. */
  readonly admin: Http;
  /**
   * Lets streams into instances and requests to models end for `drain_seconds`, stops accepting, lets work in progress finish, disconnects agents,
   * closes the database.
   */
  close(): Promise<void>;
}

export interface HouseOptions {
  /** Reads the configuration again, for a reload. Left out, it is as it was. */
  readAgain?: (() => Config) | undefined;
  /** True: while another control plane serves on PostgreSQL, this one waits until it can take over. */
  standsBy?: boolean;
  /** Ends the start: what this process holds is given back, and the promise of `openHouse` rejects with the reason. */
  stopping?: AbortSignal;
}

/** @throws DbError `database_in_use` if another control plane runs on this database, and this one does not stand by */
export async function openHouse(config: Config, log: Log, options: HouseOptions = {}): Promise<House> {
  const clock = systemClock();
  const rng = systemRng();
  const ids = createIds(clock, rng);
  const { readAgain = (): Config => config, standsBy = false, stopping } = options;
  // Reads the operator's files first, so that a mistake in them is reported before anything is created.
  const before = readFiles(config, { clock, log });
  const outside = { clock, rng, ids, log };
  const secretFile = openSecretFile(config, outside);
  const metrics = openMetrics();
  const systemd = openSystemd(serviceManager(), outside);
  const agreement = openAgreement(config, before.settings, outside);
  const standby = openStandby(systemd, { secretFile, agreement, unshared: unsharedFiles(config) }, outside);
  const foundation = await openOwnFoundation(config, {
    ...outside,
    secretFile,
    onCommit: metrics.observeCommit,
    stopping,
    ...(standsBy ? { onStandBy: standby.begin, peerUrl: config.peer_url } : {}),
  });
  try {
    stopping?.throwIfAborted();
    // A process that stood by has read its files long ago.
    const files = standby.hasBegun() ? readLatest(before, readAgain, outside) : before;
    return houseOn(foundation, files, { outside, metrics, readAgain, systemd, standby, agreement });
  } catch (error) {
    // A process that keeps the lease would not end, and would keep others from starting.
    await foundation.close();
    throw error;
  }
}

interface Read {
  outside: Omit<Core, 'db' | 'sealing'>;
  metrics: Metrics;
  readAgain(): Config;
  systemd: Systemd;
  standby: Standby;
  agreement: Agreement;
}

function houseOn(foundation: Ground, files: OperatorFiles, read: Read): House {
  const { config, settings, certificates, stores } = files;
  const { outside, metrics, readAgain, agreement } = read;
  const { clock, ids, log } = outside;
  const { hasRoom, secret } = foundation;
  const audit = openAudit({ ...outside, db: foundation.db });
  const core: Core = { ...outside, db: audit.db, sealing: openSealing(secret, ids) };
  const life: Life = { running: undefined, isStopping: false, endsSlowly: false };
  const nudges = nudgesOf(life);
  const services = openServices(config, { secret, ...stores }, core);
  const listens = (instanceId: string): boolean => listeners.publicPorts.listens(instanceId);
  const { members } = foundation;
  const agree = (): Promise<void> => agreement.enter(core.db, members.id, settings);
  const streams = openPrimaryStreams(foundation.primary, core, () => rooms.link);
  const rooms = openRooms(core, settings, {
    nudges,
    hasRoom,
    members,
    openStream: streams.openStream,
    listens,
    endsSlowly: () => life.endsSlowly,
    ...services,
  });
  const brings = bringsOf(core, rooms, {
    cursors: openCursors(secret),
    keep: config.retention,
    audit,
    metrics,
    manual: openManual(),
    console: openConsole(),
    loops: () => statusesOf(life),
    driven: () => life.running?.engine?.driven() ?? new Map(),
    secondaries: config.peer_url === undefined ? undefined : openSecondaries(members.id, core),
    ...startOf(config, { clock, foundation }),
    reload: async () => {
      const { now, next } = reloadSettings(readAgain, { rooms, listeners, started: config }, log);
      await agreement.update(core.db, members.id, next);
      return now;
    },
  });
  const web: HttpDeps = {
    ...core,
    metrics,
    authenticate: rooms.accounts.authenticate,
    authenticateSession: rooms.users.sessions.authenticate,
    ready: async () => notServing(life) ?? rooms.readiness.check(),
    hasRoom,
  };
  const admin = openAdmin(brought(brings, 'operatorRoutes'), audit, web);
  const listeners = openListeners(config, { core, rooms, brings, web, audit, certificates, foundation, streams });
  return {
    admin,
    onLost: foundation.onLost,
    ...course({ ...read, agree, config, core, foundation, rooms, brings, listeners, admin, services }, life),
  };
}

/** What changes while the house stands. */
interface Life {
  /** The loops of this process; undefined until it starts. */
  running: Running | undefined;
  /** The process ends: balancers should lead new requests elsewhere. */
  isStopping: boolean;
  /** The process ends, and its connections have a long time to. */
  endsSlowly: boolean;
}

interface Parts extends Pick<Read, 'metrics' | 'systemd' | 'standby'> {
  config: Config;
  /** Tells the other control planes what this one has set, and the log what they have set otherwise. */
  agree(): Promise<void>;
  core: Core;
  foundation: Foundation;
  rooms: Rooms;
  brings: readonly Brings[];
  listeners: Listeners;
  admin: Http;
  services: ReturnType<typeof openServices>;
}

/** How the house starts and closes. */
function course(parts: Parts, life: Life): Pick<House, 'start' | 'close'> {
  const { config, core, foundation, brings, listeners, admin, services, systemd, standby } = parts;
  const { log } = core;
  const start = async (): Promise<{ port: number }> => {
    const isPrimary = foundation.primary() === 'self';
    // A secondary does not listen there.
    const forOperators = { admin_socket: config.admin_socket };
    measure(parts, (each) => each.everywhere === true);
    if (isPrimary) await lead(parts, life);
    else await serveBeside(parts, life);
    await parts.agree();
    foundation.onPrimary(async () => {
      await lead(parts, life);
      log.info(forOperators, 'this control plane is the primary now');
      await systemd.ready();
    });
    await listeners.listenForInstances();
    await standby.end();
    const { port } = await listeners.listen();
    const served = {
      version: VERSION,
      member: foundation.members.id,
      role: isPrimary ? 'primary' : 'secondary',
      base_url: config.base_url,
      database: 'sqlite' in config.database ? 'sqlite' : 'postgresql',
      host: config.listen.host,
      port,
    };
    if (isPrimary) log.info({ ...served, ...forOperators }, 'the control plane serves');
    else log.info(served, 'the control plane serves beside the primary');
    await systemd.ready();
    return { port };
  };
  let starting: Promise<unknown> | undefined;
  return {
    start: () => {
      const started = start();
      starting = started.catch(() => undefined);
      return started;
    },
    close: async () => {
      life.isStopping = true;
      // What opens sockets and loops ends first: it would open more of them behind us.
      await starting;
      await foundation.stay();
      try {
        life.endsSlowly = config.drain_seconds > QUICK_STOP_SECONDS_MAX;
        await drain(life.running, parts, config.drain_seconds * 1_000);
        await closeRooms(brings, life.running, async () => listeners.closeWeb().then(() => admin.close()));
        await services.images.close();
        await services.modelHub.close();
      } finally {
        // If a room cannot store its last rows, the next process still need not wait until the lease times out.
        await foundation.close();
      }
    },
  };
}

/** Starts what only the primary does. A secondary calls it when it takes the place of the primary. */
async function lead(parts: Parts, life: Life): Promise<void> {
  const { config, rooms, listeners, admin } = parts;
  // A secondary has run for long, but its agents only connect now.
  rooms.quiet.begin();
  rooms.presence.begin();
  await rooms.endpoints.prepare();
  await listeners.publicPorts.sync();
  // After a long outage of our own, or the restore of a backup, the host states in the database are too old to rely on.
  if (await rooms.ownOutages.beat()) await rooms.supply.setAllOffline();
  if (life.running !== undefined) await stopLoops(life.running);
  run('primary', parts, life);
  measure(parts, (each) => each.everywhere !== true);
  await admin.listen({ socketPath: config.admin_socket });
}

/** Starts what a secondary does too. Its public ports and applications lead to their hosts through the primary. */
async function serveBeside(parts: Parts, life: Life): Promise<void> {
  await parts.listeners.publicPorts.sync();
  run('secondary', parts, life);
}

function run(as: 'primary' | 'secondary', { core, brings, listeners, systemd }: Parts, life: Life): void {
  life.running = startLoops(core, [...brings, listeners.brings], as);
  const { alive, alivePeriodMs } = systemd;
  if (alivePeriodMs !== undefined) startWatchdog(core, life.running, { alive, alivePeriodMs });
}

function measure({ metrics, brings, listeners }: Parts, which: (each: Measure) => boolean): void {
  addMeasures(metrics.registry, brought([...brings, listeners.brings], 'measures').filter(which));
}

/** Values of this start that operators see. `disk` is undefined with PostgreSQL, whose disk this process cannot measure. */
function startOf({ database }: Config, { clock, foundation }: { clock: Clock; foundation: Foundation }) {
  const disk = 'sqlite' in database ? (): Promise<DiskUse> => diskUse(database.sqlite) : undefined;
  return { startedMs: clock.now(), epoch: foundation.epoch, primacy: foundation.primacy, disk };
}

interface Ground extends Foundation {
  /** False while the disk of the database is full. The disk of a PostgreSQL server is its operator's responsibility. */
  hasRoom(): boolean;
  secret: Buffer;
}

/** @throws Error if the secret of the database is not in our file */
async function openOwnFoundation(
  { database }: Config,
  deps: Parameters<typeof openFoundation>[1] & { secretFile: SecretFile },
): Promise<Ground> {
  const ballast = 'sqlite' in database ? openBallast(`${database.sqlite}.ballast`, BALLAST_BYTES, deps) : undefined;
  const foundation = await openFoundation(database, { ...deps, makeRoom: ballast?.release });
  const secret = await deps.secretFile.secretOf(foundation.db).catch(async (error: unknown) => {
    await foundation.close();
    throw error;
  });
  await ballast?.restore();
  return {
    ...foundation,
    secret,
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
  { rooms, listeners, started }: { rooms: Rooms; listeners: Listeners; started: Config },
  log: Log,
): { now: Fields; next: Settings } {
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
    waits_for_restart: waitsForRestart(started, config).join(', '),
  };
  log.info(now, 'models, templates, environments and limits were read again');
  return { now, next };
}

async function drain(
  running: Running | undefined,
  { core: { clock }, systemd, listeners, rooms }: Parts,
  drainMs: number,
): Promise<void> {
  const untilMs = clock.monotonicMs() + drainMs;
  if (running !== undefined) await systemd.stopping(drainMs);
  const ended = running?.loops.filter(({ endsBeforeDrain }) => endsBeforeDrain) ?? [];
  await Promise.all(ended.map(({ loop }) => loop.stop()));
  await listeners.drain(drainMs);
  // The API goes on meanwhile, so requests that have come later have what is left of the time.
  while (rooms.gateway.openRequests() > 0 && clock.monotonicMs() < untilMs) await clock.sleep(ANSWERS_LOOK_MS);
}

/** Why balancers should lead requests elsewhere, whatever the database says; undefined if they need not. */
function notServing({ running, isStopping }: Life): string[] | undefined {
  if (isStopping) return ['stopping'];
  return running === undefined ? ['still starting'] : undefined;
}

function statusesOf({ running }: Life): LoopStatus[] {
  return running === undefined ? [] : allLoops(running).map((loop) => loop.status());
}

/** Does nothing while no loop runs, because the first tick of each loop checks everything. */
function nudgesOf(life: Life): Nudges {
  const nudgeLoop = (name: string): void =>
    life.running?.loops.find(({ loop }) => loop.status().name === name)?.loop.nudge();
  return {
    engine: () => life.running?.engine?.nudge(),
    edge: () => nudgeLoop('edge'),
    watch: () => nudgeLoop('watch'),
    webhooks: () => nudgeLoop('webhooks'),
  };
}
