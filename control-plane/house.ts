// The only file that knows every room at work: opens the database, the sockets and the loops, and closes them in reverse.
import { type Clock, systemClock } from '../shared/clock.ts';
import { createIds, type Ids } from '../shared/ids.ts';
import { type Loop, startLoop } from '../shared/loop.ts';
import type { Log } from '../shared/log.ts';
import { ucentsFromDollars } from '../shared/money.ts';
import { LINK_PATH, STREAMS_PATH } from '../shared/protocol/link.ts';
import { systemRng } from '../shared/rng.ts';
import { openAdmin } from './admin/admin.ts';
import { metricsRoute } from './admin/routes.ts';
import { adminDeps } from './admin-deps.ts';
import { apiKeyRoutes } from './base/accounts/api-key-routes.ts';
import { sshKeyRoutes } from './base/accounts/routes.ts';
import type { Db } from './base/db/db.ts';
import { type Cursors, openCursors } from './base/http/cursors.ts';
import { type Metrics, openMetrics } from './base/http/metrics.ts';
import type { Route } from './base/http/route.ts';
import { openSealing, type Sealing } from './base/http/sealing.ts';
import { type Http, type HttpDeps, openHttp } from './base/http/server.ts';
import { type Engine, startEngine } from './base/operations/engine.ts';
import { operationRoutes } from './base/operations/routes.ts';
import { openOutbound, type Outbound } from './base/outbound/outbound.ts';
import { type Config, readSecret } from './config.ts';
import { type Foundation, openFoundation } from './foundation.ts';
import { catalogRoutes } from './fleet/supply/catalog-routes.ts';
import { supplyRoutes } from './fleet/supply/routes.ts';
import { TICK_MS } from './money/metering/metering.ts';
import { billingRoutes } from './money/metering/routes.ts';
import type { AppAddress } from './rental/doors/app-address.ts';
import { appAccess, doorAccess } from './rental/edge/access.ts';
import { type App, openAppProxy } from './rental/edge/app-proxy.ts';
import { type AppServer, openAppServer } from './rental/edge/app-server.ts';
import { edgeRoutes } from './rental/edge/routes.ts';
import { openSshDoors, type SshDoors } from './rental/edge/ssh-doors.ts';
import { openImages } from './rental/launch/images.ts';
import { registryCredentialRoutes } from './rental/launch/routes.ts';
import type { PrivateRegistry } from './rental/launch/ways.ts';
import { instanceRoutes } from './rental/instances/routes.ts';
import { reservationRoutes } from './rental/reservations/routes.ts';
import { webhookRoutes } from './rental/webhooks/routes.ts';
import { type Core, openRooms, type Rooms, type Settings } from './rooms.ts';

/** Where probes find the SSH ports when they listen on every address. */
const LOOPBACK = '127.0.0.1';
const EDGE_PERIOD_MS = 2_000;
const WATCH_PERIOD_MS = 1_000;
/** Events nudge; this is for retries. */
const WEBHOOKS_PERIOD_MS = 500;
const PURGE_PERIOD_MS = 3_600_000;
/** Agents come back after a restart spread over this time. */
const RECONNECT_AFTER_MS = 1_000;

export interface House {
  /** Opens the sockets and starts the loops. */
  start(): Promise<{ port: number }>;
  /** Called when another control plane has taken over the database: this process must end at once. */
  onLost(fn: () => void): void;
  /** The operator's routes without a socket: how commands work while the daemon is stopped. */
  readonly admin: Http;
  /** Stops accepting, lets work under way finish, says goodbye to agents, closes the database. */
  close(): Promise<void>;
}

interface Running {
  engine: Engine;
  loops: Loop[];
}

/** @throws DbError `database_in_use` where another control plane runs on this database */
export async function openHouse(config: Config, log: Log): Promise<House> {
  const clock = systemClock();
  const rng = systemRng();
  const ids = createIds(clock, rng);
  const secret = readSecret(config, rng);
  const core = { clock, rng, ids, log, sealing: openSealing(secret, ids) };
  const foundation = await openFoundation(config.database, core);
  let running: Running | undefined;
  const nudgeLoop = (name: string): void => running?.loops.find((loop) => loop.status().name === name)?.nudge();
  const nudges = {
    engine: () => running?.engine.nudge(),
    edge: () => nudgeLoop('edge'),
    webhooks: () => nudgeLoop('webhooks'),
  };
  const webhookOutbound = openWebhookOutbound(config, clock);
  const images = openImages(privateRegistriesOf(config), { clock });
  const rooms = openRooms({ ...core, db: foundation.db }, settingsOf(config), { nudges, webhookOutbound, images });
  const metrics = openMetrics();
  const loopsNow = (): Loop[] => (running === undefined ? [] : [running.engine.loop, ...running.loops]);
  const web: HttpDeps = {
    ...core,
    db: foundation.db,
    metrics,
    authenticate: (token) => rooms.accounts.authenticate(token),
    ready: async () => (running === undefined ? ['still starting'] : []),
  };
  const admin = openAdmin(
    adminDeps({ ...core, db: foundation.db }, rooms, { loops: () => loopsNow().map((loop) => loop.status()), metrics }),
    web,
  );
  const http = openPublicHttp(config, web, { rooms, foundation, secret, sealing: core.sealing });
  const metricsHttp = config.metrics_listen === undefined ? undefined : openMetricsHttp(config, web, metrics);
  const sshDoors = openDoorsOf({ ...core, db: foundation.db }, rooms, config.ssh.host);
  const apps = config.apps === undefined ? undefined : openApps(config.apps, { ...core, db: foundation.db }, rooms);

  return {
    admin,
    onLost: foundation.onLost,
    start: async () => {
      await rooms.supply.setAllOffline();
      await rooms.doors.prepare();
      await sshDoors.sync();
      running = startLoops({ ...core, db: foundation.db }, rooms, { sshDoors, http });
      await admin.listen({ socketPath: config.admin_socket });
      if (config.metrics_listen !== undefined) await metricsHttp?.listen(config.metrics_listen);
      if (config.apps !== undefined) await apps?.listen(config.apps.listen);
      const { port } = await http.listen(config.listen);
      log.info({ host: config.listen.host, port, admin_socket: config.admin_socket }, 'the control plane serves');
      return { port };
    },
    close: async () => {
      await rooms.link.drain(RECONNECT_AFTER_MS);
      rooms.logs.close();
      await apps?.close();
      await http.close();
      await metricsHttp?.close();
      await admin.close();
      await Promise.all(running?.loops.map((loop) => loop.stop()) ?? []);
      await rooms.webhooks.courier.stop();
      await running?.engine.stop();
      await sshDoors.close();
      await images.close();
      await foundation.close();
    },
  };
}

function openDoorsOf(core: Core, rooms: Rooms, host: string): SshDoors {
  const { link, doors } = rooms;
  const keysOfOrg = async (...args: Parameters<Rooms['sshKeys']['keysForOrg']>): Promise<string[]> =>
    (await rooms.sshKeys.keysForOrg(...args)).map((key) => key.public_key);
  return openSshDoors({
    ...core,
    link,
    doors,
    host,
    access: (instanceId) => doorAccess(instanceId, { db: core.db, doors, keysOfOrg }),
  });
}

function openApps(config: NonNullable<Config['apps']>, core: Core, { link, doors }: Rooms): AppServer {
  const findApp = async (address: AppAddress): Promise<App | undefined> => {
    const access = await appAccess(address, { db: core.db, doors });
    if (access === undefined) return undefined;
    const { machineId, workloadId, port, login } = access;
    return { login, port, dial: () => link.openStream(machineId, workloadId, { kind: 'tcp', port }) };
  };
  return openAppServer(openAppProxy({ ...core, domain: config.domain, findApp }), config.tls);
}

function settingsOf(config: Config): Settings {
  const everywhere = config.ssh.host === '0.0.0.0' || config.ssh.host === '::';
  return {
    platformFeeBps: config.platform_fee_bps,
    launchHoldMinutes: config.launch_hold_minutes,
    diskPriceUcentsPerGbHour: ucentsFromDollars(config.disk_price_per_gb_hour) ?? 0n,
    hostnameOf: (instanceId) =>
      config.ssh.domain === undefined ? new URL(config.base_url).hostname : `${instanceId}.${config.ssh.domain}`,
    appSite:
      config.apps === undefined ? undefined : { domain: config.apps.domain, publicPort: config.apps.public_port },
    sshPorts: config.ssh.port_range,
    sshHost: everywhere ? LOOPBACK : config.ssh.host,
    webhookMaxAttempts: config.webhooks.max_attempts,
  };
}

function openWebhookOutbound({ webhooks }: Config, clock: Clock): Outbound {
  const privateNetworks = webhooks.allowed_networks;
  return openOutbound({ ports: webhooks.allowed_ports, privateNetworks, namedHosts: [] }, { clock });
}

function privateRegistriesOf({ images }: Config): PrivateRegistry[] {
  return images.private_registries.map((registry) => ({ host: registry.host, plainHttp: registry.plain_http }));
}

function openPublicHttp(
  config: Config,
  web: HttpDeps,
  house: { rooms: Rooms; foundation: Foundation; secret: Buffer; sealing: Sealing },
): Http {
  const { rooms, foundation, secret, sealing } = house;
  const http = openHttp(web, {
    epoch: foundation.epoch,
    audience: 'public',
    baseUrl: config.base_url,
    trustProxy: config.trust_proxy,
    sealing,
    rateLimits: {
      perKeyPerSecond: config.rate_limits.per_key_per_second,
      perIpPerSecond: config.rate_limits.per_ip_per_second,
      burst: config.rate_limits.burst,
    },
  });
  const { clock, ids } = web;
  http.register(publicRoutes({ ...rooms, db: foundation.db, clock, ids, cursors: openCursors(secret) }));
  http.onUpgrade(LINK_PATH, rooms.link.onLinkUpgrade);
  http.onUpgrade(STREAMS_PATH, rooms.link.onStreamUpgrade);
  return http;
}

/** Every route of the public listener, agents' too. */
export function publicRoutes(deps: Rooms & { db: Db; clock: Clock; ids: Ids; cursors: Cursors }): Route[] {
  return [
    ...catalogRoutes(deps),
    ...apiKeyRoutes(deps),
    ...sshKeyRoutes(deps),
    ...registryCredentialRoutes(deps),
    ...instanceRoutes(deps),
    ...reservationRoutes(deps),
    ...edgeRoutes(deps),
    ...operationRoutes(deps),
    ...webhookRoutes(deps),
    ...billingRoutes(deps),
    ...supplyRoutes(deps),
  ];
}

function openMetricsHttp(config: Config, web: HttpDeps, metrics: Metrics): Http {
  const http = openHttp(web, { epoch: 0, audience: 'public', baseUrl: config.base_url, trustProxy: [] });
  http.register([metricsRoute(metrics, 'none')]);
  return http;
}

function startLoops(core: Core, rooms: Rooms, house: { sshDoors: SshDoors; http: Http }): Running {
  const { log } = core;
  const engine = startEngine([rooms.instances.driver, rooms.reservations.driver], core);
  const loops = [
    startLoop(
      {
        name: 'metering',
        periodMs: TICK_MS,
        run: async (signal) => {
          for (const id of await rooms.metering.tick(signal)) await rooms.instances.stopUnpaid(id);
        },
      },
      core,
    ),
    startLoop({ name: 'edge', periodMs: EDGE_PERIOD_MS, run: () => house.sshDoors.sync() }, core),
    startLoop({ name: 'webhooks', periodMs: WEBHOOKS_PERIOD_MS, run: () => rooms.webhooks.courier.run() }, core),
    startLoop({ name: 'watch', periodMs: WATCH_PERIOD_MS, run: (signal) => rooms.watch.run(signal) }, core),
    startLoop(
      {
        name: 'purge',
        periodMs: PURGE_PERIOD_MS,
        run: async (signal) => {
          await rooms.webhooks.purge(signal);
          const forgotten = await house.http.purgeIdempotencyKeys();
          log.debug({ forgotten }, 'old idempotency keys are forgotten');
        },
      },
      core,
    ),
  ];
  return { engine, loops };
}
