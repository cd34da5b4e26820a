// Sets GPUs aside for reservation contracts, now or as they come free, and ends that.
//
// A machine is locked before its GPUs change. A need of a contract (`slot_wants`) is locked after the machine that serves it.
import type { Db, Tx } from '../../base/db/db.ts';
import type { Driver } from '../../base/operations/engine.ts';
import * as slots from './slots.ts';

export interface Reserving {
  /** Sets free GPUs aside for a reservation contract. False if there are too few; then the caller rolls back. */
  reserve(tx: Tx, want: slots.SlotReservation): Promise<boolean>;
  /** Registers a need of the contract: GPUs are set aside for it as they come free, before any launch can take them. */
  awaitSlots(tx: Tx, want: slots.DatedWant): Promise<void>;
  /** The contract has another end (null: it is renewed), which decides on which machines its needs are served. */
  extendWants(tx: Tx, reservedBy: string, endsMs: number | null): Promise<void>;
  /** Ends all slots and needs of the contract. Free GPUs are on offer again at once, held ones when they are released. */
  unreserve(tx: Tx, reservedBy: string): Promise<void>;
  /** Gives up slots that nobody holds and on which nothing can be launched: the host is offline or not listed, or the GPU is unusable. */
  unreserveStranded(tx: Tx, reservedBy: string): Promise<void>;
  /**
   * Serves needs of contracts for which a machine has free GPUs. Mostly the transaction that frees a GPU does this. But on PostgreSQL it does not
   * see a need that another transaction stores at that moment.
   */
  driver: Driver;
}

interface ReservingDeps {
  db: Db;
  /** Locks the machine, serves the needs of contracts, and updates the offerings. */
  refresh(tx: Tx, machineId: string): Promise<void>;
}

export function openReserving({ db, refresh }: ReservingDeps): Reserving {
  return {
    reserve: async (tx, want) => {
      await tx.lock('machine', want.machineId);
      if ((await slots.setAside(tx, want)) < want.count) return false;
      await refresh(tx, want.machineId);
      return true;
    },
    awaitSlots: slots.insertWant,
    extendWants: slots.extendWants,
    unreserve: async (tx, reservedBy) => {
      await tx.lock('machine', ...(await slots.machinesWithSlots(tx, reservedBy)));
      // First, so that no machine sets a GPU aside for the contract after its slots have ended.
      await slots.dropWants(tx, reservedBy);
      for (const machineId of await slots.giveUpAll(tx, reservedBy)) await refresh(tx, machineId);
    },
    unreserveStranded: async (tx, reservedBy) => {
      await tx.lock('machine', ...(await slots.machinesWithSlots(tx, reservedBy)));
      for (const machineId of await slots.giveUpStranded(tx, reservedBy)) await refresh(tx, machineId);
    },
    driver: {
      name: 'slot_wants',
      due: (_, limit) => slots.machinesWanted(db.read, limit),
      drive: (machineId) => db.tx('supply.serve_wants', (tx) => refresh(tx, machineId)),
    },
  };
}
