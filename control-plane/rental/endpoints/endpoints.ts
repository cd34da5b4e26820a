// Endpoints of instances: opens and closes them, and hands out their public ports.
import { z } from 'zod';
import type { Clock } from '../../../shared/clock.ts';
import { fail } from '../../../shared/errors.ts';
import type { Ids } from '../../../shared/ids.ts';
import { flag, int, json, text } from '../../base/db/columns.ts';
import { type Db, type Query, type Tx, join, raw, sql } from '../../base/db/db.ts';
import type { Sealing } from '../../base/http/sealing.ts';

const EndpointRow = z.object({
  instance_id: text,
  hostname: text,
  ssh_port: int,
  /** The public host key of the instance's SSH server, as an OpenSSH line. Null until the host has reported it. */
  host_key: text.nullable(),
  /** Ports of the application that have a public port of their own. */
  tcp_ports: json(z.array(z.strictObject({ port: z.int(), public_port: z.int() }))),
  app_user: text,
  app_password_sealed: text,
  open: flag,
});
export type Endpoint = z.infer<typeof EndpointRow>;

/** `tcp_ports` is null if the list is empty. Most applications have no port of their own, and parsing thousands of empty lists costs time. */
const PortsRow = EndpointRow.pick({ instance_id: true, ssh_port: true }).extend({
  tcp_ports: EndpointRow.shape.tcp_ports.nullable(),
});
/** The public ports of an endpoint. */
export type EndpointPorts = Pick<Endpoint, 'instance_id' | 'ssh_port' | 'tcp_ports'>;

const PortRow = z.object({ port: int });
const SKIP_LOCKED = sql`for update skip locked`;
const COLUMNS = sql`instance_id, hostname, ssh_port, host_key, tcp_ports, app_user, app_password_sealed, open`;
/** Number of open endpoints that are read in one turn of the event loop: about a millisecond. */
const ENDPOINTS_PER_PAGE = 500;
/** Number of ports that one statement adds. With one statement for each of ten thousand ports, every start would take a second longer. */
const PORTS_PER_STATEMENT = 500;
/** An operator must know when few are left, and each scrape of the metrics reads them. */
export const FREE_COUNTED_MAX = 500;
/** The user name of every application login. It is the same for all instances, because only the password is secret. */
const APP_USER = 'svc';
const APP_PASSWORD_BYTES = 24;
/** Retry-After if all ports are in use. It is a guess: a port comes free when some instance ends, and nobody knows when that is. */
const NO_PORT_RETRY_SECONDS = 60;

export interface Endpoints {
  /** Adds the configured ports to the table. A port outside of the range stays with the instance that has it. */
  prepare(): Promise<void>;
  /** Takes `count` public ports for the instance, or all that are free if there are fewer. */
  takePorts(tx: Tx, instanceId: string, count: number): Promise<number[]>;
  /**
   * Opens an endpoint with the taken ports: one for SSH and one for each of `tcpPorts`. Makes its logins.
   * @throws ServiceError `unavailable` if too few ports were taken
   */
  open(tx: Tx, instanceId: string, ports: { taken: readonly number[]; tcpPorts: readonly number[] }): Promise<void>;
  /** Number of configured ports that no instance has, or FREE_COUNTED_MAX if there are more. */
  countFree(query: Query): Promise<number>;
  /** The password of the application's login. */
  appPassword(endpoint: Endpoint): string;
  /** Gives back ports that were taken for the instance and that no endpoint was opened with. */
  giveBack(tx: Tx, instanceId: string, ports: readonly number[]): Promise<void>;
  /** Closes the endpoint, if there is one, and gives its ports back. */
  close(tx: Tx, instanceId: string): Promise<void>;
  setHostKey(tx: Tx, instanceId: string, hostKey: string): Promise<void>;
  find(query: Query, instanceId: string): Promise<Endpoint | undefined>;
  /** The endpoints of these instances, closed ones too. */
  ofInstances(query: Query, instanceIds: string[]): Promise<Map<string, Endpoint>>;
  /**
   * The ports of all open endpoints. It is read after every launch, so it leaves keys and logins out, and other work of the process goes on in
   * between. An endpoint that is opened or closed meanwhile may be missing, or be in the list still. If a port passes from one endpoint to another
   * meanwhile, both may be in the list; the new one comes later.
   */
  openEndpoints(query: Query): Promise<EndpointPorts[]>;
}

interface EndpointsDeps {
  db: Db;
  clock: Clock;
  ids: Ids;
  sealing: Sealing;
  hostnameOf(instanceId: string): string;
  ports: { first: number; last: number };
}

export function openEndpoints(deps: EndpointsDeps): Endpoints {
  const { db } = deps;
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
    takePorts: (tx, instanceId, count) => takePorts(tx, instanceId, count, deps),
    open: (tx, instanceId, ports) => openEndpoint(tx, instanceId, ports, deps),
    countFree: async (query) => {
      const { first, last } = deps.ports;
      const rows = await query.all(
        PortRow,
        sql`select port from endpoint_ports where instance_id is null and +port between ${first} and ${last}
            order by released_ms, port limit ${FREE_COUNTED_MAX}`,
      );
      return rows.length;
    },
    appPassword: (endpoint) => deps.sealing.open(passwordPlace(endpoint.instance_id), endpoint.app_password_sealed),
    giveBack: (tx, instanceId, ports) => giveBack(tx, instanceId, ports, deps),
    close: async (tx, instanceId) => {
      const endpoint = await findEndpoint(tx, instanceId);
      if (endpoint === undefined) return;
      const ports = [endpoint.ssh_port, ...endpoint.tcp_ports.map(({ public_port: port }) => port)];
      await Promise.all([
        tx.run(sql`update endpoints set open = 0 where instance_id = ${instanceId}`),
        giveBack(tx, instanceId, ports, deps),
      ]);
    },
    setHostKey: async (tx, instanceId, hostKey) => {
      await tx.run(sql`update endpoints set host_key = ${hostKey} where instance_id = ${instanceId}`);
    },
    find: findEndpoint,
    ofInstances: async (query, instanceIds) => {
      if (instanceIds.length === 0) return new Map();
      const rows = await query.all(
        EndpointRow,
        sql`select ${COLUMNS} from endpoints where instance_id in (${join(instanceIds)})`,
      );
      return new Map(rows.map((row) => [row.instance_id, row]));
    },
    openEndpoints: async (query) => {
      const found: EndpointPorts[] = [];
      for (let afterId = ''; ;) {
        const page = await pageOfPorts(query, afterId);
        for (const row of page) found.push({ ...row, tcp_ports: row.tcp_ports ?? [] });
        const last = page.at(-1);
        if (last === undefined || page.length < ENDPOINTS_PER_PAGE) return found;
        afterId = last.instance_id;
        await deps.clock.nextTurn();
      }
    },
  };
}

async function openEndpoint(
  tx: Tx,
  instanceId: string,
  { taken, tcpPorts }: { taken: readonly number[]; tcpPorts: readonly number[] },
  { ids, sealing, hostnameOf }: EndpointsDeps,
): Promise<void> {
  const [sshPort, ...others] = taken;
  if (sshPort === undefined || others.length < tcpPorts.length) refuseWithoutPorts();
  const public_ports = tcpPorts.map((port, i) => ({ port, public_port: others[i] }));
  const password = sealing.seal(passwordPlace(instanceId), ids.secret(APP_PASSWORD_BYTES));
  await tx.run(
    sql`insert into endpoints (${COLUMNS})
        values (${instanceId}, ${hostnameOf(instanceId)}, ${sshPort}, ${null}, ${JSON.stringify(public_ports)}, ${APP_USER}, ${password}, 1)`,
  );
}

/**
 * Takes the ports that have been free for the longest time. On PostgreSQL, launches at the same moment skip each other's ports instead of waiting
 * for them. The inner statement is materialized. Otherwise the server could run it once more for each row and lock other ports. The limit is
 * written into the text of the statement, so that the server keeps the plan (see `candidates`). `+port` keeps the database from using the primary
 * key. It then walks the index by release time, and the first rows are the right ones.
 */
async function takePorts(
  tx: Tx,
  instanceId: string,
  count: number,
  { db, ports: { first, last } }: EndpointsDeps,
): Promise<number[]> {
  const skip = db.dialect === 'postgres' ? SKIP_LOCKED : sql``;
  const rows = await tx.all(
    PortRow,
    sql`with free as materialized (
          select port from endpoint_ports where instance_id is null and +port between ${first} and ${last}
          order by released_ms, port limit ${raw(String(count))} ${skip})
        update endpoint_ports set instance_id = ${instanceId} where port in (select port from free) returning port`,
  );
  return rows.map(({ port }) => port).toSorted((a, b) => a - b);
}

/** Finds the ports by their numbers: an index of the instances that have them would cost each launch more than it saves. */
async function giveBack(tx: Tx, instanceId: string, ports: readonly number[], { clock }: EndpointsDeps): Promise<void> {
  await tx.run(
    sql`update endpoint_ports set instance_id = null, released_ms = ${clock.now()}
        where port in (${join(ports)}) and instance_id = ${instanceId}`,
  );
}

function findEndpoint(query: Query, instanceId: string): Promise<Endpoint | undefined> {
  return query.one(EndpointRow, sql`select ${COLUMNS} from endpoints where instance_id = ${instanceId}`);
}

function pageOfPorts(query: Query, afterId: string): Promise<z.infer<typeof PortsRow>[]> {
  return query.all(
    PortsRow,
    sql`select instance_id, ssh_port, nullif(tcp_ports, '[]') as tcp_ports from endpoints
        where open = 1 and instance_id > ${afterId} order by instance_id limit ${ENDPOINTS_PER_PAGE}`,
  );
}

function refuseWithoutPorts(): never {
  fail('unavailable', {
    detail: 'All public ports are in use. Try again in a few minutes.',
    retryAfterSeconds: NO_PORT_RETRY_SECONDS,
  });
}

function passwordPlace(instanceId: string): string {
  return `app password of ${instanceId}`;
}
