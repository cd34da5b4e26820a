// Which machines are connected, as the database shows it: the newest link of each machine for operators, the heartbeats of connected machines,
// and machines that are offline because their link did not return after a restart of the control plane.
import { z } from 'zod';
import type { Clock } from '../../../shared/clock.ts';
import { LINK_RECONNECT_MS_MAX } from '../../../shared/limits.ts';
import type { Log } from '../../../shared/log.ts';
import type { Supply } from '../supply/supply.ts';
import type { CloneTokens } from './clone-tokens.ts';
import type { Link } from './link.ts';
import type { HelloMessage } from '../../../shared/protocol/link.ts';
import { text } from '../../base/db/columns.ts';
import { type Db, type Tx, sql } from '../../base/db/db.ts';
import { openRowFailures } from '../../base/db/row-failures.ts';

/**
 * After a start, and after a secondary has become the primary, every agent has this time to reconnect. Until then its machine keeps its state,
 * so that a restart of the control plane takes no offering off the market. If the host is really gone, a launch on it fails over to another
 * one. After a longer outage of the control plane, all machines are marked offline at the start.
 */
export const RETURN_MS = 4 * LINK_RECONNECT_MS_MAX;

/**
 * How often values that only memory knows exactly are stored, for example `last_heartbeat_at`. So a stored value is at most this old. Each time,
 * rows of the whole fleet are written.
 */
export const STORE_MS = 600_000;
/** Number of machines that one statement reads or locks at most. */
const MACHINES_AT_ONCE = 200;

export interface Presence {
  /** This process becomes the primary: RETURN_MS begins now. */
  begin(): void;
  /**
   * Marks machines without a link offline after RETURN_MS. Each run checks all machines that the database marks online, so no change is missed.
   * Once in STORE_MS it stores the heartbeats of connected machines, and clone tokens. @throws what has failed, at the end; DbError at once
   */
  run(): Promise<void>;
}

export function openPresence(deps: {
  clock: Clock;
  log: Log;
  supply: Pick<Supply, 'onlineMachineIds' | 'loseLink' | 'noteHeartbeats'>;
  link: Pick<Link, 'isUp'>;
  cloneTokens: Pick<CloneTokens, 'store'>;
}): Presence {
  const { clock, log, supply, link, cloneTokens } = deps;
  const isUp = (machineId: string): boolean => link.isUp(machineId);
  const markOffline = async (machineId: string): Promise<void> => {
    if (await supply.loseLink(machineId, isUp))
      log.warn({ machine_id: machineId }, 'a machine was marked online but has no link; it is now offline');
  };
  let startedMs = clock.monotonicMs();
  let notedMs = startedMs;
  return {
    begin: () => {
      startedMs = clock.monotonicMs();
      notedMs = startedMs;
    },
    run: async () => {
      if (clock.monotonicMs() - startedMs < RETURN_MS) return;
      const isNoteDue = clock.monotonicMs() - notedMs >= STORE_MS;
      const failures = openRowFailures();
      for (let afterId: string | undefined = ''; afterId !== undefined;) {
        const online: string[] = await supply.onlineMachineIds(afterId, MACHINES_AT_ONCE);
        for (const machineId of online.filter((id) => !isUp(id)))
          await failures.note(`the machine ${machineId} could not be marked offline`, markOffline(machineId));
        if (isNoteDue) await supply.noteHeartbeats(online.filter(isUp));
        afterId = online.at(-1);
      }
      if (isNoteDue) {
        notedMs = clock.monotonicMs();
        await cloneTokens.store();
      }
      failures.throwAll();
    },
  };
}

export interface LinkRecords {
  up(tx: Tx, machineId: string, hello: HelloMessage, clientIp: string): Promise<void>;
  /** Stores the end of the machine's link, unless `isUp` says that it has a new one by now. */
  down(machineId: string, isUp: (machineId: string) => boolean): Promise<void>;
}

const LinkRow = z.object({ machine_id: text });

export function openLinkRecords(deps: { db: Db; clock: Clock }): LinkRecords {
  const { db, clock } = deps;
  return {
    up: async (tx, machineId, hello, clientIp) => {
      await tx.run(
        sql`insert into agent_links (machine_id, boot_id, agent_version, client_ip, connected_ms)
            values (${machineId}, ${hello.boot_id}, ${hello.inventory.agent_version}, ${clientIp}, ${clock.now()})
            on conflict (machine_id) do update set boot_id = excluded.boot_id, agent_version = excluded.agent_version,
              client_ip = excluded.client_ip, connected_ms = excluded.connected_ms, disconnected_ms = null`,
      );
    },
    down: (machineId, isUp) =>
      db.tx('link.down', async (tx) => {
        await tx.lock('machine', machineId);
        const its = sql`machine_id = ${machineId}`;
        // See `loseLink`: the lock is held once this read has answered.
        const known = await tx.one(LinkRow, sql`select machine_id from agent_links where ${its}`);
        if (known === undefined || isUp(machineId)) return;
        await tx.run(sql`update agent_links set disconnected_ms = ${clock.now()} where ${its}`);
      }),
  };
}
