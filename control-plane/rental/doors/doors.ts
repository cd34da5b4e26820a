// Opening and closing the door of an instance.
import { z } from 'zod';
import type { Clock } from '../../../shared/clock.ts';
import { fail } from '../../../shared/errors.ts';
import { flag, int, text } from '../../base/db/columns.ts';
import { type Db, type Query, type Tx, join, sql } from '../../base/db/db.ts';

const DoorRow = z.object({
  instance_id: text,
  hostname: text,
  ssh_port: int,
  /** OpenSSH private key. */
  probe_private_key: text,
  /** OpenSSH line. */
  probe_public_key: text,
  /** OpenSSH line, null until the host has reported it. */
  host_key: text.nullable(),
  open: flag,
});
export type Door = z.infer<typeof DoorRow>;

const PortRow = z.object({ port: int });
const COLUMNS = sql`instance_id, hostname, ssh_port, probe_private_key, probe_public_key, host_key, open`;

/** A key that may log in as the probe user and do nothing else. */
export interface ProbeKey {
  /** OpenSSH private key text. */
  privateKey: string;
  /** OpenSSH public key line. */
  publicLine: string;
}

export interface Doors {
  /** Makes the configured ports known; ports outside the range stay with whoever has them. */
  prepare(): Promise<void>;
  /** @throws ServiceError `unavailable` when every port is taken */
  open(tx: Tx, instanceId: string): Promise<void>;
  /** Gives the port back. */
  close(tx: Tx, instanceId: string): Promise<void>;
  setHostKey(tx: Tx, instanceId: string, hostKey: string): Promise<void>;
  find(query: Query, instanceId: string): Promise<Door | undefined>;
  /** Those of `instanceIds` that were ever opened. */
  ofInstances(query: Query, instanceIds: string[]): Promise<Map<string, Door>>;
  openDoors(query: Query): Promise<Door[]>;
}

export function openDoors(deps: {
  db: Db;
  clock: Clock;
  hostnameOf(instanceId: string): string;
  ports: { first: number; last: number };
  newProbeKey(): ProbeKey;
}): Doors {
  const { db, clock } = deps;
  return {
    prepare: () =>
      db.tx('doors.prepare', async (tx) => {
        for (let port = deps.ports.first; port <= deps.ports.last; port += 1) {
          await tx.run(
            sql`insert into door_ports (port, released_ms) values (${port}, 0) on conflict (port) do nothing`,
          );
        }
      }),
    open: async (tx, instanceId) => {
      const taken = await tx.one(
        PortRow,
        sql`update door_ports set instance_id = ${instanceId} where port = (
              select port from door_ports
              where instance_id is null and port between ${deps.ports.first} and ${deps.ports.last}
              order by released_ms, port limit 1)
            returning port`,
      );
      if (taken === undefined) return fail('unavailable', 'All SSH ports are in use. Try again in a few minutes.');
      const probe = deps.newProbeKey();
      await tx.run(
        sql`insert into doors (instance_id, hostname, ssh_port, probe_private_key, probe_public_key, open)
            values (${instanceId}, ${deps.hostnameOf(instanceId)}, ${taken.port}, ${probe.privateKey}, ${probe.publicLine}, 1)`,
      );
    },
    close: async (tx, instanceId) => {
      await tx.run(sql`update doors set open = 0 where instance_id = ${instanceId}`);
      await tx.run(
        sql`update door_ports set instance_id = null, released_ms = ${clock.now()} where instance_id = ${instanceId}`,
      );
    },
    setHostKey: async (tx, instanceId, hostKey) => {
      await tx.run(sql`update doors set host_key = ${hostKey} where instance_id = ${instanceId}`);
    },
    find: (query, instanceId) =>
      query.one(DoorRow, sql`select ${COLUMNS} from doors where instance_id = ${instanceId}`),
    ofInstances: async (query, instanceIds) => {
      if (instanceIds.length === 0) return new Map();
      const rows = await query.all(
        DoorRow,
        sql`select ${COLUMNS} from doors where instance_id in (${join(instanceIds)})`,
      );
      return new Map(rows.map((door) => [door.instance_id, door]));
    },
    openDoors: (query) => query.all(DoorRow, sql`select ${COLUMNS} from doors where open = 1`),
  };
}
