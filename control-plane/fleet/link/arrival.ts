// What a hello does in the database. Thousands of hosts link within seconds after a restart of the control plane. So a hello is one transaction
// of few round trips, and it does not write what is stored already:
//
//   lock the machine │ clone token, link record, revision, machine and its GPUs   -> their rows
//                    │ online, offerings on the market                            -> rows changed
//                    │ COMMIT
//
// All statements of a line are sent together. If the inventory differs from the stored one, the machine is judged again, which takes more
// statements.
import type { HelloMessage } from '../../../shared/protocol/link.ts';
import type { Db, Tx } from '../../base/db/db.ts';
import type { MachineFacts } from '../supply/intake.ts';
import type { Supply } from '../supply/supply.ts';
import type { CloneTokens } from './clone-tokens.ts';
import type { LinkRecords } from './presence.ts';
import type { Caller } from './session.ts';

interface ArrivalDeps {
  db: Db;
  cloneTokens: Pick<CloneTokens, 'show'>;
  records: Pick<LinkRecords, 'up'>;
  supply: Pick<Supply, 'factsOf' | 'arrive' | 'setCopied' | 'noteGpus'>;
  /** True if the host holds a newer desired state than the database. */
  meet(tx: Tx, machineId: string, held: HelloMessage['held']): Promise<boolean>;
}

export type Arrive = (machineId: string, hello: HelloMessage, caller: Caller) => Promise<void>;

export function openArrival({ db, cloneTokens, records, supply, meet }: ArrivalDeps): Arrive {
  const readAll = (tx: Tx, machineId: string, hello: HelloMessage, { clientIp }: Caller) =>
    Promise.all([
      supply.factsOf(tx, machineId),
      meet(tx, machineId, hello.held),
      records.up(tx, machineId, hello, clientIp),
    ]);
  const enter = async (tx: Tx, facts: MachineFacts | undefined, hello: HelloMessage) =>
    facts === undefined ? [] : supply.arrive(tx, facts, hello.inventory);

  return async (machineId, hello, caller) => {
    const shown = { publicKey: caller.publicKey, token: hello.clone_token };
    const [token, held] = await db.tx('link.hello', async (tx) => {
      await tx.lock('machine', machineId);
      const [token, [facts, isAhead]] = await Promise.all([
        cloneTokens.show(tx, machineId, shown),
        readAll(tx, machineId, hello, caller),
      ]);
      if (!token.isGenuine) return [token, []] as const;
      return [token, await enter(tx, isAhead ? await supply.factsOf(tx, machineId) : facts, hello)] as const;
    });
    token.take();
    if (token.isGenuine) return supply.noteGpus(machineId, held);
    await supply.setCopied(machineId, true);
    await db.tx('link.hello_of_copy', async (tx) => {
      await tx.lock('machine', machineId);
      await enter(tx, await supply.factsOf(tx, machineId), hello);
    });
  };
}
