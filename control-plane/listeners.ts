// The sockets of the house: the API, the metrics, applications, and the public ports of instances.
import { HTTP_CONNECTIONS_PER_ADDRESS_MAX } from '../shared/limits.ts';
import type { Log } from '../shared/log.ts';
import { LINK_PATH, STREAMS_PATH } from '../shared/protocol/link.ts';
import { metricsRoute } from './admin/routes.ts';
import { openAddressLimit } from './base/http/address-limit.ts';
import { openCursors } from './base/http/cursors.ts';
import { type Http, type HttpDeps, openHttp } from './base/http/server.ts';
import { openTls, type Tls, type TlsFiles } from './base/http/tls.ts';
import type { Config } from './config.ts';
import { docsRoutes } from './docs/routes.ts';
import { publicRoutes } from './public-routes.ts';
import type { AppAddress } from './rental/doors/app-address.ts';
import { appAccess, doorAccess } from './rental/edge/access.ts';
import { type App, openAppProxy } from './rental/edge/app-proxy.ts';
import { type AppServer, openAppServer } from './rental/edge/app-server.ts';
import { openPublicPorts, type PublicPorts } from './rental/edge/public-ports.ts';
import type { Query } from './base/db/db.ts';
import type { InstanceRow } from './rental/instances/store.ts';
import { sshKeysOf } from './looks.ts';
import type { Core, Rooms } from './rooms.ts';

export interface Listeners {
  http: Http;
  publicPorts: PublicPorts;
  /** Serves certificates that have been renewed. */
  refreshCertificates(): void;
  listen(): Promise<{ port: number }>;
  /**
   * Instances and their applications take no new connections; those that are there may last for so long. The API goes on.
   * The loop `edge` must have ended: it would open the ports again.
   */
  drain(graceMs: number): Promise<void>;
  /** The rest. */
  closeWeb(): Promise<void>;
}

interface ListenersDeps {
  core: Core;
  rooms: Rooms;
  web: HttpDeps;
  certificates: Certificates;
  /** Of the lease `primary`. */
  epoch: number;
  /** The server's own. */
  secret: Buffer;
}

/** Opens no socket yet. */
export function openListeners(config: Config, deps: ListenersDeps): Listeners {
  const { core, rooms, web, certificates: tls } = deps;
  const http = openPublicHttp(config, tls.api, deps);
  const metricsHttp = config.metrics_listen === undefined ? undefined : openMetricsHttp(config, web);
  const apps = config.apps === undefined ? undefined : openApps(config, config.apps, deps);
  const publicPorts = openPortsOf(config, core, rooms);
  return {
    http,
    publicPorts,
    refreshCertificates: tls.refresh,
    listen: async () => {
      if (config.metrics_listen !== undefined) await metricsHttp?.listen(config.metrics_listen);
      if (config.apps !== undefined) await apps?.listen(config.apps.listen);
      return http.listen(config.listen);
    },
    drain: async (graceMs) => {
      await Promise.all([publicPorts.close(graceMs), apps?.close(graceMs)]);
    },
    closeWeb: async () => {
      await http.close();
      await metricsHttp?.close();
    },
  };
}

export interface Certificates {
  api: Tls | undefined;
  apps: Tls | undefined;
  refresh(): void;
}

/** @throws Error where certificate files cannot be used */
export function openCertificates(config: Config, log: Log): Certificates {
  const open = (files: TlsFiles | undefined): Tls | undefined =>
    files === undefined ? undefined : openTls(files, { log });
  const [api, apps] = [open(config.tls), open(config.apps?.tls)];
  return {
    api,
    apps,
    refresh: () => {
      api?.refresh();
      apps?.refresh();
    },
  };
}

function openPublicHttp(
  config: Config,
  tls: Tls | undefined,
  { core, rooms, web, epoch, secret }: ListenersDeps,
): Http {
  const http = openHttp(web, {
    epoch,
    audience: 'public',
    baseUrl: config.base_url,
    trustProxy: config.trust_proxy,
    sealing: core.sealing,
    rateLimits: {
      perKeyPerSecond: config.rate_limits.per_key_per_second,
      perIpPerSecond: config.rate_limits.per_ip_per_second,
      burst: config.rate_limits.burst,
      inference: {
        perKeyPerSecond: config.rate_limits.inference_per_key_per_second,
        burst: config.rate_limits.inference_burst,
      },
    },
    connectionsPerAddressMax: HTTP_CONNECTIONS_PER_ADDRESS_MAX,
    ...(tls === undefined ? {} : { tls }),
  });
  http.register(publicRoutes({ ...core, ...rooms, cursors: openCursors(secret) }));
  http.register(docsRoutes());
  http.onUpgrade(LINK_PATH, rooms.link.onLinkUpgrade);
  http.onUpgrade(STREAMS_PATH, rooms.link.onStreamUpgrade);
  return http;
}

function openMetricsHttp(config: Config, web: HttpDeps): Http {
  const http = openHttp(web, { epoch: 0, audience: 'public', baseUrl: config.base_url, trustProxy: [] });
  http.register([metricsRoute(web.metrics, 'none')]);
  return http;
}

function openApps(
  { trust_proxy: trusted }: Config,
  { domain }: NonNullable<Config['apps']>,
  { core, rooms, certificates }: ListenersDeps,
): AppServer {
  const { link, doors } = rooms;
  const findApp = async (address: AppAddress): Promise<App | undefined> => {
    const access = await appAccess(address, { db: core.db, doors });
    if (access === undefined) return undefined;
    const { machineId, workloadId, target, login } = access;
    return { login, target, dial: () => link.openStream(machineId, workloadId, target) };
  };
  return openAppServer({
    ...core,
    proxy: openAppProxy({ ...core, domain, findApp }),
    tls: certificates.apps,
    limit: openAddressLimit({ max: HTTP_CONNECTIONS_PER_ADDRESS_MAX, trusted }, core.log),
  });
}

function openPortsOf(config: Config, core: Core, rooms: Rooms): PublicPorts {
  const { link, doors, sshKeys, decoys } = rooms;
  const keysOf = async (query: Query, instance: InstanceRow): Promise<string[]> =>
    decoys.among(query, instance.id, await sshKeysOf(sshKeys, query, instance));
  return openPublicPorts({
    ...core,
    link,
    doors,
    host: config.ssh.host,
    trustProxy: config.trust_proxy,
    access: (instanceId) => doorAccess(instanceId, { db: core.db, doors, keysOf }),
  });
}
