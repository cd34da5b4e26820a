// Stores the newest link of each machine for operators.
import type { Clock } from '../../../shared/clock.ts';
import type { HelloMessage } from '../../../shared/protocol/link.ts';
import { type Db, sql } from '../../base/db/db.ts';

export interface LinkRecords {
  up(hello: HelloMessage, clientIp: string): Promise<void>;
  down(machineId: string): Promise<void>;
}

export function openLinkRecords(deps: { db: Db; clock: Clock }): LinkRecords {
  const { db, clock } = deps;
  return {
    up: async (hello, clientIp) => {
      await db.tx('link.up', (tx) =>
        tx.run(
          sql`insert into agent_links (machine_id, boot_id, agent_version, client_ip, connected_ms)
              values (${hello.machine_id}, ${hello.boot_id}, ${hello.inventory.agent_version}, ${clientIp}, ${clock.now()})
              on conflict (machine_id) do update set boot_id = excluded.boot_id, agent_version = excluded.agent_version,
                client_ip = excluded.client_ip, connected_ms = excluded.connected_ms, disconnected_ms = null`,
        ),
      );
    },
    down: async (machineId) => {
      await db.tx('link.down', (tx) =>
        tx.run(sql`update agent_links set disconnected_ms = ${clock.now()} where machine_id = ${machineId}`),
      );
    },
  };
}
