// The SQL of the newest link of each machine.
import { type Tx, sql } from '../../base/db/db.ts';

export interface LinkFacts {
  machineId: string;
  bootId: string;
  agentVersion: string;
  clientIp: string;
  nowMs: number;
}

export async function noteUp(tx: Tx, link: LinkFacts): Promise<void> {
  await tx.run(
    sql`insert into agent_links (machine_id, boot_id, agent_version, client_ip, connected_ms)
        values (${link.machineId}, ${link.bootId}, ${link.agentVersion}, ${link.clientIp}, ${link.nowMs})
        on conflict (machine_id) do update set boot_id = excluded.boot_id, agent_version = excluded.agent_version,
          client_ip = excluded.client_ip, connected_ms = excluded.connected_ms, disconnected_ms = null`,
  );
}

export async function noteDown(tx: Tx, machineId: string, nowMs: number): Promise<void> {
  await tx.run(sql`update agent_links set disconnected_ms = ${nowMs} where machine_id = ${machineId}`);
}
