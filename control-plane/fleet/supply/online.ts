// Marks a machine offline if its link is lost, with its offerings and its link time. `arrive` in intake.ts marks it online.
//
// Only the process with the links knows whether a machine has one. A link is known there before its hello is stored, and that hello writes
// nothing if the machine is online already. So a machine goes offline only if it has no link while its row is locked:
//
//   lost link:  lock machine, no link: offline, commit
//   hello:        link is up ............ lock machine: it is offline, so online; commit
//
//   hello:      link is up, lock machine: it is online, so nothing; commit
//   lost link:      lock machine ......................................... a link is up: nothing
import type { Clock } from '../../../shared/clock.ts';
import type { Db, Tx } from '../../base/db/db.ts';
import { noteLinkDown } from './reliability.ts';
import * as store from './store.ts';

export interface Online {
  /** Marks a machine without a link offline. False if `isUp` says that it has a link by now, or if the machine is gone; then nothing changes. */
  loseLink(machineId: string, isUp: (machineId: string) => boolean): Promise<boolean>;
}

interface OnlineDeps {
  db: Db;
  clock: Clock;
  /** Updates the offerings of the machine. */
  refresh(tx: Tx, machineId: string): Promise<void>;
}

export function openOnline({ db, clock, refresh }: OnlineDeps): Online {
  return {
    loseLink: (machineId, isUp) =>
      db.tx('supply.lost_link', async (tx) => {
        await tx.lock('machine', machineId);
        // The lock is held once the next statement has answered. Before that, `isUp` would answer too early.
        const machine = await store.findMachine(tx, machineId);
        if (machine === undefined || isUp(machineId)) return false;
        await store.setOnline(tx, machineId, false, clock.now());
        await noteLinkDown(tx, machineId, clock.now());
        await refresh(tx, machineId);
        return true;
      }),
  };
}
