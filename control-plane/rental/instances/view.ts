// An instance row as the API shows it, with the presence rules of specification 2.2.
import type { Connection, Instance } from '../../../shared/api/instance.ts';
import type { ReservedInstance } from '../../../shared/api/reservation.ts';
import { isoTime } from '../../../shared/clock.ts';
import { dollarsFromUcents } from '../../../shared/money.ts';
import { type AppSite, appUrl } from '../endpoints/app-address.ts';
import type { Endpoint } from '../endpoints/endpoints.ts';
import { balanceReason } from './balance-warnings.ts';
import { CONNECTABLE, LIVE, type InstanceRow, type ReservedRow, type ShownInstance } from './store.ts';
import { GRACE_MS } from '../../../shared/limits.ts';
import type { MainExit, ObservedWorkload } from '../../../shared/protocol/workload.ts';

/** The statuses of instances as the list of contracts names them (specification 2.2, 2.7). */
const RESERVED_STATUS: Partial<Record<InstanceRow['status'], ReservedInstance['status']>> = {
  allocating: 'allocating',
  starting: 'booting',
  running: 'running',
  unreachable: 'unreachable',
  stopping: 'stopping',
  error: 'error',
};

/** What the view needs in addition to the row. `appPassword` is set only if the caller asked for credentials. */
export interface Surroundings {
  endpoint: Endpoint | undefined;
  /** The domain of applications; undefined if applications are not served. */
  site: AppSite | undefined;
  appPassword?: string | undefined;
}

export function instanceView(row: ShownInstance, around: Surroundings): Instance {
  const { endpoint } = around;
  const timeOrNull = (ms: number | null): string | null => (ms === null ? null : isoTime(ms));
  return {
    id: row.id,
    status: row.status,
    gpu_type: row.gpu_type,
    gpu_count: row.gpu_count,
    region: row.region,
    ...shareView(row),
    tier: row.tier,
    price_per_hour: dollarsFromUcents(row.price_ucents_per_hour),
    created_at: isoTime(row.created_ms),
    name: row.name,
    ready_at: timeOrNull(row.ready_ms),
    terminated_at: timeOrNull(row.terminated_ms),
    ...(row.disk_gb === null ? {} : { disk_gb: row.disk_gb }),
    ...(row.shown.image === null ? {} : { image: row.shown.image }),
    reservation_id: row.reservation_id,
    host_rentable_until: LIVE.has(row.status) ? timeOrNull(row.placed?.rentable_until_ms ?? null) : null,
    ...limitView(row),
    ...(row.shown.auto_terminate_on_exit === true ? { auto_terminate_on_exit: true } : {}),
    ...reasonView(row),
    ...(row.main_exit === null ? {} : { main_exit: row.main_exit }),
    ...(row.last_reachable_ms === null ? {} : { last_reachable_at: isoTime(row.last_reachable_ms) }),
    ...(row.status === 'unreachable' && row.unreachable_since_ms !== null
      ? { unreachable_since: isoTime(row.unreachable_since_ms) }
      : {}),
    connection: endpoint !== undefined && CONNECTABLE.has(row.status) ? connectionView(row, endpoint, around) : null,
  };
}

/** The instance as the list of contracts shows it; empty if it is terminated or stopped. */
export function reservedView(row: ReservedRow, endpoint: Endpoint | undefined): ReservedInstance[] {
  const status = RESERVED_STATUS[row.status];
  if (status === undefined) return [];
  return [{ instance_id: row.id, hostname: endpoint?.hostname ?? null, gpu_count: row.gpu_count, status }];
}

function shareView({ placed }: ShownInstance): Pick<Instance, 'offering_id' | 'vram_gb' | 'cpu_cores' | 'ram_gb'> {
  if (placed === null) return {};
  return {
    offering_id: placed.offering_id,
    vram_gb: placed.vram_gb,
    ...(placed.cpu_cores === null ? {} : { cpu_cores: placed.cpu_cores }),
    ...(placed.ram_gb === null ? {} : { ram_gb: placed.ram_gb }),
  };
}

/** The warning about the balance comes after the reason of the status, because what has happened already is more important. */
function reasonView(row: ShownInstance): Pick<Instance, 'status_reason'> {
  const { status, status_reason: reason, balance_below_hours: belowHours } = row;
  const warning = status === 'running' && belowHours !== null ? balanceReason(belowHours) : null;
  const reasons = [reason, warning].filter((each) => each !== null);
  return reasons.length === 0 ? {} : { status_reason: reasons.join(' ') };
}

/** Both fields stay in the view after the end of the instance. Only an end by the limit itself removes the time (`expire` in steps.ts). */
function limitView(row: ShownInstance): Pick<Instance, 'auto_terminate_hours' | 'auto_terminate_at'> {
  const { auto_terminate_hours: hours } = row.shown;
  if (hours === null) return {};
  const endMs = row.auto_terminate_ms;
  return { auto_terminate_hours: hours, ...(endMs === null ? {} : { auto_terminate_at: isoTime(endMs) }) };
}

function connectionView(row: ShownInstance, endpoint: Endpoint, { site, appPassword }: Surroundings): Connection {
  return {
    hostname: endpoint.hostname,
    port: endpoint.ssh_port,
    ssh_command: `ssh -p ${endpoint.ssh_port} root@${endpoint.hostname}`,
    ...(endpoint.host_key === null ? {} : { host_key: endpoint.host_key }),
    ...appView(row, endpoint, { site, appPassword }),
  };
}

/** Console and login are there if applications are served, whatever the image is. */
function appView(
  { id, shown, status }: ShownInstance,
  endpoint: Endpoint,
  { site, appPassword }: Pick<Surroundings, 'site' | 'appPassword'>,
): Partial<Connection> {
  const web = site === undefined ? [] : shown.ports.filter(({ protocol }) => protocol === 'http');
  const pages = web.flatMap(({ port, primary }) =>
    site === undefined || primary === true
      ? []
      : [{ port, protocol: 'http' as const, url: appUrl(site, { instanceId: id, at: port }) }],
  );
  const tcp = endpoint.tcp_ports.map((one) => ({ ...one, protocol: 'tcp' as const, hostname: endpoint.hostname }));
  const hasPrimary = site !== undefined && web.some(({ primary }) => primary === true);
  return {
    ...(hasPrimary ? { app_url: appUrl(site, { instanceId: id, at: 'primary' }) } : {}),
    ...(site === undefined || status !== 'running'
      ? {}
      : { terminal_url: appUrl(site, { instanceId: id, at: 'terminal' }) }),
    ...(site === undefined ? {} : { app_user: endpoint.app_user }),
    ...(site === undefined || appPassword === undefined ? {} : { app_password: appPassword }),
    ...(pages.length + tcp.length === 0 ? {} : { ports: [...pages, ...tcp] }),
  };
}

/** Null if there is nothing to report. A broken GPU comes first, because its text says that the time is not charged. */
export function runningReason(about: { gpuFault: string | null; observed: ObservedWorkload | null }): string | null {
  const { gpuFault, observed } = about;
  const exit = observed?.main_exit ?? null;
  // The container stays up and reachable after its main process has ended (DESIGN section 6).
  if (gpuFault === null) return exit === null ? null : `main process ${exitWords(exit)}`;
  return `The host has found a GPU of this instance broken (${gpuFault}). This time is not charged; the instance ends if that is not mended within ${GRACE_MS / 60_000} minutes.`;
}

/** Why an instance ends together with its program. */
export function exitReason({ exit, gpuFault }: { exit: MainExit; gpuFault: string | null }): string {
  const ended = `The main process ${exitWords(exit)}.`;
  if (gpuFault === null) return ended;
  return `${ended} The host had found a GPU of this instance broken before (${gpuFault}). That time was not charged.`;
}

function exitWords({ code, signal }: MainExit): string {
  return signal === null ? `exited with code ${code}` : `was ended by signal ${signal}`;
}
