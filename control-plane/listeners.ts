// The sockets of the house: the API, the metrics, the applications, and the public ports of instances.
import { HTTP_CONNECTIONS_PER_ADDRESS_MAX } from '../shared/limits.ts';
import type { Clock } from '../shared/clock.ts';
import type { Log } from '../shared/log.ts';
import { LINK_PATH, STREAMS_PATH } from '../shared/protocol/link.ts';
import type { Audit } from './admin/audit.ts';
import { operatorSessionRoutes } from './admin/admin.ts';
import { metricsRoute } from './admin/status-routes.ts';
import { openAddressLimit } from './base/http/address-limit.ts';
import type { Measure } from './base/http/metrics.ts';
import type { RateLimitOptions } from './base/http/rate-limits.ts';
import { type Http, type HttpDeps, openHttp } from './base/http/server.ts';
import { openTls, type Tls, type TlsFiles } from './base/http/tls.ts';
import { type Brings, brought } from './brings.ts';
import type { Config } from './config.ts';
import { openPeerStreamsListener, type PeerStreamsListener } from './fleet/link/peer-streams-listener.ts';
import { PEER_STREAMS_PATH } from './fleet/link/peer-wire.ts';
import type { Foundation } from './foundation.ts';
import type { AppAddress } from './rental/endpoints/app-address.ts';
import { appAccess, endpointAccess } from './rental/edge/access.ts';
import { type App, openAppProxy } from './rental/edge/app-proxy.ts';
import { type AppServer, openAppServer } from './rental/edge/app-server.ts';
import { openPortStreams, type PortStreams } from './rental/edge/port-streams.ts';
import { openPublicPorts, portMeasures, type PublicPorts } from './rental/edge/public-ports.ts';
import type { Rooms } from './rooms.ts';
import type { Core } from './settings.ts';
import { portOpener, type PrimaryStreams } from './primary-streams.ts';

/**
 * Periods of the loop `edge`. Each launch asks the primary for a run. A secondary is not told, so it opens the ports up to a second later. Each
 * run reads all open endpoints, so the gap grows with the time of a run.
 */
const EDGE_TIMES = { periodMs: 1_000, gapMs: 200, gapOfRun: 20 };
/** A renewed certificate is served within this time. */
const CERTIFICATES_PERIOD_MS = 10_000;

export interface Listeners {
  /** Loops of the sockets themselves, and the deletion of old Idempotency-Keys. */
  brings: Brings;
  publicPorts: PublicPorts;
  /** Applies those settings that need no restart. */
  reload(config: Config): void;
  /** Listens for requests to the API and for metrics. */
  listen(): Promise<{ port: number }>;
  /** Listens for requests to applications. */
  listenForInstances(): Promise<void>;
  /**
   * Refuses new connections to instances and their applications. Open connections may last for `graceMs`. The API goes on.
   * The loop `edge` must have ended, because it would open the ports again.
   */
  drain(graceMs: number): Promise<void>;
  /** Closes the remaining sockets. */
  closeWeb(): Promise<void>;
}

interface ListenersDeps {
  core: Core;
  rooms: Rooms;
  /** Routes, loops and other parts of all rooms. */
  brings: readonly Brings[];
  web: HttpDeps;
  audit: Audit;
  certificates: Certificates;
  foundation: Pick<Foundation, 'epoch' | 'primary' | 'members'>;
  streams: PrimaryStreams;
}

/** Opens no socket yet. */
export function openListeners(config: Config, deps: ListenersDeps): Listeners {
  const { core, web, certificates: tls } = deps;
  const ownPorts = portStreamsOf(deps);
  const peers = config.peer_url === undefined ? undefined : openPeerEnd(ownPorts, deps);
  const http = openPublicHttp(config, peers, deps);
  const metricsHttp = config.metrics_listen === undefined ? undefined : openMetricsHttp(config, web);
  const apps = config.apps === undefined ? undefined : openApps(config, config.apps, deps);
  const publicPorts = openPublicPorts({
    ...core,
    endpoints: deps.rooms.endpoints,
    host: config.ssh.host,
    trustProxy: config.trust_proxy,
    streams: deps.streams.portsThrough(ownPorts),
  });
  return {
    brings: bringsOfSockets(http, publicPorts, tls),
    publicPorts,
    reload: (next) => http.setRateLimits(rateLimitsOf(next)),
    listen: async () => {
      if (config.metrics_listen !== undefined) await metricsHttp?.listen(config.metrics_listen);
      return http.listen(config.listen);
    },
    listenForInstances: async () => {
      if (config.apps !== undefined) await apps?.listen(config.apps.listen);
    },
    drain: async (graceMs) => {
      await Promise.all([publicPorts.close(graceMs), apps?.close(graceMs), peers?.drain(graceMs)]);
    },
    closeWeb: async () => {
      await http.close();
      await metricsHttp?.close();
    },
  };
}

export function bringsOfSockets(
  http: Pick<Http, 'purgeIdempotencyKeys'>,
  publicPorts: Pick<PublicPorts, 'sync' | 'unopened'>,
  certificates: Certificates,
): Brings {
  return {
    loops: [
      { name: 'edge', ...EDGE_TIMES, run: () => publicPorts.sync(), endsBeforeDrain: true, everywhere: true },
      {
        name: 'certificates',
        periodMs: CERTIFICATES_PERIOD_MS,
        run: async () => certificates.refresh(),
        everywhere: true,
      },
    ],
    forgets: [{ what: 'idempotency_keys', run: http.purgeIdempotencyKeys }],
    measures: [...portMeasures(publicPorts), certificateMeasure(certificates)],
  };
}

export interface Certificates {
  api: Tls | undefined;
  apps: Tls | undefined;
  refresh(): void;
}

/** @throws Error if certificate files cannot be used */
export function openCertificates(config: Config, deps: { clock: Clock; log: Log }): Certificates {
  const open = (setting: string, files: TlsFiles | undefined, hosts: string[]): Tls | undefined =>
    files === undefined ? undefined : openTls({ setting, hosts }, files, deps);
  const { base_url: url, peer_url: peerUrl, apps: site } = config;
  const urls = [url, ...(peerUrl === undefined ? [] : [peerUrl])].filter((each) => each.startsWith('https:'));
  const api = open('tls', config.tls, [...new Set(urls.map(hostOf))]);
  // An application is at a name below the domain, so a wildcard must cover it.
  const apps = open('apps.tls', site?.tls, site === undefined ? [] : [`any.${site.domain}`]);
  return {
    api,
    apps,
    refresh: () => {
      api?.refresh();
      apps?.refresh();
    },
  };
}

function hostOf(url: string): string {
  return new URL(url).hostname.replace(/^\[(.*)\]$/, '$1');
}

/** It has no samples if this process serves no TLS. */
export function certificateMeasure({ api, apps }: Pick<Certificates, 'api' | 'apps'>): Measure {
  return {
    name: 'svc_certificate_expires_timestamp_seconds',
    help: 'When the certificate expires that this control plane serves, by the setting that names it',
    kind: 'gauge',
    labels: ['setting'],
    everywhere: true,
    read: () =>
      [api, apps]
        .filter((tls) => tls !== undefined)
        .map(({ setting, expiresMs }) => ({ labels: { setting }, value: expiresMs() / 1_000 })),
  };
}

function openPublicHttp(
  config: Config,
  peers: PeerStreamsListener | undefined,
  { core, rooms, brings, web, audit, foundation, certificates: { api: tls } }: ListenersDeps,
): Http {
  const http = openHttp(web, {
    epoch: foundation.epoch,
    primary: foundation.primary,
    member: foundation.members.id,
    audience: 'public',
    baseUrl: config.base_url,
    trustProxy: config.trust_proxy,
    sealing: core.sealing,
    rateLimits: rateLimitsOf(config),
    connectionsPerAddressMax: HTTP_CONNECTIONS_PER_ADDRESS_MAX,
    ...(tls === undefined ? {} : { tls }),
    // Without a domain of their own, instances have their ports at the host name of the API, and a program there may speak plain HTTP.
    isOnlyTls: config.ssh.domain !== undefined,
  });
  http.register(brought(brings, 'routes'));
  http.register(operatorSessionRoutes(brought(brings, 'operatorRoutes'), audit));
  http.onUpgrade(LINK_PATH, rooms.link.onLinkUpgrade);
  http.onUpgrade(STREAMS_PATH, rooms.link.onStreamUpgrade);
  if (peers !== undefined) http.onUpgrade(PEER_STREAMS_PATH, peers.onUpgrade);
  return http;
}

function openPeerEnd(ports: PortStreams, { core, rooms: { link }, foundation }: ListenersDeps): PeerStreamsListener {
  const own = { openStream: link.openStream, openPort: portOpener(ports) };
  return openPeerStreamsListener({ ...core, member: foundation.members.id, ...own });
}

function rateLimitsOf({ rate_limits: limits }: Config): RateLimitOptions {
  return {
    perKeyPerSecond: limits.per_key_per_second,
    perIpPerSecond: limits.per_ip_per_second,
    burst: limits.burst,
    inference: {
      perKeyPerSecond: limits.inference_per_key_per_second,
      burst: limits.inference_burst,
      perOrgPerSecond: limits.inference_per_org_per_second,
      orgBurst: limits.inference_burst_per_org,
    },
  };
}

function openMetricsHttp(config: Config, web: HttpDeps): Http {
  const http = openHttp(web, { epoch: () => 0, audience: 'public', baseUrl: config.base_url, trustProxy: [] });
  http.register([metricsRoute(web.metrics, 'none')]);
  return http;
}

function openApps(
  { trust_proxy: trusted }: Config,
  { domain }: NonNullable<Config['apps']>,
  { core, rooms: { endpoints }, certificates, streams }: ListenersDeps,
): AppServer {
  const findApp = async (address: AppAddress): Promise<App | undefined> => {
    const access = await appAccess(address, { db: core.db, endpoints });
    if (access === undefined) return undefined;
    const { machineId, workloadId, target, login } = access;
    return { login, target, dial: () => streams.openStream(machineId, workloadId, target) };
  };
  return openAppServer({
    ...core,
    proxy: openAppProxy({ ...core, domain, trustProxy: trusted, findApp }),
    tls: certificates.apps,
    limit: openAddressLimit({ max: HTTP_CONNECTIONS_PER_ADDRESS_MAX, trusted }, core),
  });
}

/** The streams of public ports to hosts that are linked to this process. */
function portStreamsOf({ core, rooms: { link, endpoints, decoys } }: ListenersDeps): PortStreams {
  const keysOf = decoys.loginKeysOf;
  return openPortStreams({
    ...core,
    link,
    access: (instanceId) => endpointAccess(instanceId, { db: core.db, endpoints, keysOf }),
  });
}
