// Endpoints of instances: opens and closes them, and hands out their public ports.
import { createHash } from 'node:crypto';
import { z } from 'zod';
import type { Clock } from '../../../shared/clock.ts';
import { fail } from '../../../shared/errors.ts';
import type { Ids } from '../../../shared/ids.ts';
import { flag, int, json, text } from '../../base/db/columns.ts';
import { type Db, type Query, type Tx, join, sql } from '../../base/db/db.ts';
import type { Sealing } from '../../base/http/sealing.ts';

const EndpointRow = z.object({
  instance_id: text,
  hostname: text,
  ssh_port: int,
  /** OpenSSH private key; sealed in the database. */
  probe_private_key: text,
  /** OpenSSH line. */
  probe_public_key: text,
  /** OpenSSH line, null until the host has reported it. */
  host_key: text.nullable(),
  /** Ports of the application that have a public port of their own. */
  tcp_ports: json(z.array(z.strictObject({ port: z.int(), public_port: z.int() }))),
  app_user: text,
  app_password_sealed: text,
  open: flag,
});
export type Endpoint = z.infer<typeof EndpointRow>;

const PortsRow = EndpointRow.pick({ instance_id: true, ssh_port: true, tcp_ports: true });
/** The public ports of an endpoint. */
export type EndpointPorts = z.infer<typeof PortsRow>;

const PortRow = z.object({ port: int });
const COLUMNS = sql`instance_id, hostname, ssh_port, probe_private_key, probe_public_key, host_key, tcp_ports, app_user,
  app_password_sealed, open`;
/** Ten thousand single statements would take a second of every start. */
const PORTS_PER_STATEMENT = 500;
/** The same for every instance, because only the password is secret. */
const APP_USER = 'svc';
const APP_PASSWORD_BYTES = 24;
/** Free ports that a launch reads at once. */
const PORTS_TRIED = 16;
/** Nobody can know when the next port comes free, because it comes with the end of an instance. */
const NO_PORT_RETRY_SECONDS = 60;

/** A key that may log in as the probe user and do nothing else. */
export interface ProbeKey {
  /** OpenSSH private key text. */
  privateKey: string;
  /** OpenSSH public key line. */
  publicLine: string;
}

export interface Endpoints {
  /** Adds the configured ports to the table. A port outside of the range stays with the instance that has it. */
  prepare(): Promise<void>;
  /** Takes a port for SSH and one for each of `tcpPorts`, and makes a login. @throws ServiceError `unavailable` if every port is taken */
  open(tx: Tx, instanceId: string, tcpPorts: readonly number[]): Promise<void>;
  /** The password of the application's login. */
  appPassword(endpoint: Endpoint): string;
  /** Gives the ports back. */
  close(tx: Tx, instanceId: string): Promise<void>;
  setHostKey(tx: Tx, instanceId: string, hostKey: string): Promise<void>;
  find(query: Query, instanceId: string): Promise<Endpoint | undefined>;
  /** The endpoints of these instances, closed ones too. */
  ofInstances(query: Query, instanceIds: string[]): Promise<Map<string, Endpoint>>;
  /** The ports of all open endpoints. It is read after every launch, so it leaves keys and logins out. */
  openEndpoints(query: Query): Promise<EndpointPorts[]>;
}

interface EndpointsDeps {
  db: Db;
  clock: Clock;
  ids: Ids;
  sealing: Sealing;
  hostnameOf(instanceId: string): string;
  ports: { first: number; last: number };
  newProbeKey(): ProbeKey;
}

export function openEndpoints(deps: EndpointsDeps): Endpoints {
  const { db, clock } = deps;
  return {
    prepare: () =>
      db.tx('endpoints.prepare', async (tx) => {
        const { first, last } = deps.ports;
        for (let from = first; from <= last; from += PORTS_PER_STATEMENT) {
          const count = Math.min(PORTS_PER_STATEMENT, last - from + 1);
          const rows = Array.from({ length: count }, (_, index) => sql`(${from + index}, 0)`);
          await tx.run(
            sql`insert into endpoint_ports (port, released_ms) values ${join(rows)} on conflict (port) do nothing`,
          );
        }
      }),
    open: (tx, instanceId, tcpPorts) => openEndpoint(tx, instanceId, tcpPorts, deps),
    appPassword: (endpoint) => deps.sealing.open(passwordPlace(endpoint.instance_id), endpoint.app_password_sealed),
    close: async (tx, instanceId) => {
      await tx.run(sql`update endpoints set open = 0 where instance_id = ${instanceId}`);
      await tx.run(
        sql`update endpoint_ports set instance_id = null, released_ms = ${clock.now()} where instance_id = ${instanceId}`,
      );
    },
    setHostKey: async (tx, instanceId, hostKey) => {
      await tx.run(sql`update endpoints set host_key = ${hostKey} where instance_id = ${instanceId}`);
    },
    find: async (query, instanceId) => {
      const row = await query.one(EndpointRow, sql`select ${COLUMNS} from endpoints where instance_id = ${instanceId}`);
      return row && unsealed(row, deps);
    },
    ofInstances: async (query, instanceIds) => {
      if (instanceIds.length === 0) return new Map();
      const rows = await query.all(
        EndpointRow,
        sql`select ${COLUMNS} from endpoints where instance_id in (${join(instanceIds)})`,
      );
      return new Map(rows.map((row) => [row.instance_id, unsealed(row, deps)]));
    },
    openEndpoints: (query) =>
      query.all(PortsRow, sql`select instance_id, ssh_port, tcp_ports from endpoints where open = 1`),
  };
}

async function openEndpoint(
  tx: Tx,
  instanceId: string,
  tcpPorts: readonly number[],
  { ids, sealing, ports, newProbeKey, hostnameOf }: EndpointsDeps,
): Promise<void> {
  const sshPort = await takePort(tx, instanceId, ports);
  const public_ports: Endpoint['tcp_ports'] = [];
  for (const port of tcpPorts) public_ports.push({ port, public_port: await takePort(tx, instanceId, ports) });
  const probe = newProbeKey();
  const probeKey = sealing.seal(probeKeyPlace(instanceId), probe.privateKey);
  const password = sealing.seal(passwordPlace(instanceId), ids.secret(APP_PASSWORD_BYTES));
  await tx.run(
    sql`insert into endpoints (${COLUMNS})
        values (${instanceId}, ${hostnameOf(instanceId)}, ${sshPort}, ${probeKey}, ${probe.publicLine}, ${null},
          ${JSON.stringify(public_ports)}, ${APP_USER}, ${password}, 1)`,
  );
}

/**
 * Takes one of the ports that have been free for the longest time. Launches at the same moment begin with different ones, so that they do not
 * wait for each other. `+port` keeps the database from using the primary key. It then walks the index by release time, and the first rows
 * are the right ones.
 */
async function takePort(tx: Tx, instanceId: string, { first, last }: EndpointsDeps['ports']): Promise<number> {
  for (;;) {
    const free = await tx.all(
      PortRow,
      sql`select port from endpoint_ports where instance_id is null and +port between ${first} and ${last}
          order by released_ms, port limit ${PORTS_TRIED}`,
    );
    for (const { port } of rotated(free, instanceId)) {
      const taken = await tx.run(
        sql`update endpoint_ports set instance_id = ${instanceId} where port = ${port} and instance_id is null`,
      );
      if (taken === 1) return port;
    }
    if (free.length < PORTS_TRIED) break;
  }
  return fail('unavailable', {
    detail: 'All public ports are in use. Try again in a few minutes.',
    retryAfterSeconds: NO_PORT_RETRY_SECONDS,
  });
}

/** The ports in order, from a place on that the random id of the instance decides. */
function rotated<T>(ports: readonly T[], instanceId: string): T[] {
  const from = createHash('sha256').update(instanceId).digest().readUInt32BE() % Math.max(1, ports.length);
  return [...ports.slice(from), ...ports.slice(0, from)];
}

function unsealed(row: Endpoint, { sealing }: Pick<EndpointsDeps, 'sealing'>): Endpoint {
  return { ...row, probe_private_key: sealing.open(probeKeyPlace(row.instance_id), row.probe_private_key) };
}

function probeKeyPlace(instanceId: string): string {
  return `probe key of ${instanceId}`;
}

function passwordPlace(instanceId: string): string {
  return `app password of ${instanceId}`;
}
