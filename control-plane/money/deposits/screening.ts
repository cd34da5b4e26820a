// Whether tokens of a sender may be taken. The sender is looked up in the imported lists, then by the oracle of its chain.
import type { DepositChain } from '../../../shared/api/deposit.ts';
import { messageOf } from '../../../shared/errors.ts';
import type { Log } from '../../../shared/log.ts';
import type { Db } from '../../base/db/db.ts';
import { countSanctioned, findSanctioned } from './addresses-store.ts';
import { type ChainReader, SENDERS_SEPARATOR } from './reader.ts';

/** `unknown`: nobody could check the sender now. */
export type Verdict = 'clear' | 'hit' | 'unknown';

/** Checks a sender. It never throws. Another provider of such checks can be used instead of `openScreening`. */
export type Screen = (chain: DepositChain, address: string) => Promise<Verdict>;

export function openScreening(deps: {
  db: Db;
  log: Log;
  readerOf(chain: DepositChain): Pick<ChainReader, 'isSanctioned'> | undefined;
}): Screen {
  const { db, log, readerOf } = deps;
  return async (chain, address) => {
    if ((await findSanctioned(db.read, address)) !== undefined) return 'hit';
    try {
      const answer = (await readerOf(chain)?.isSanctioned(address)) ?? null;
      if (answer !== null) return answer ? 'hit' : 'clear';
    } catch (error) {
      log.warn({ chain, detail: messageOf(error) }, 'the oracle for sanctions gave no answer; the deposit waits');
      return 'unknown';
    }
    // If there is no oracle, the imported lists decide. If there are no lists either, nobody has checked the sender.
    return (await countSanctioned(db.read)) > 0 ? 'clear' : 'unknown';
  };
}

/**
 * Checks each sender once. A transfer may have several senders. Returns `hit` if one of them is a hit, otherwise `unknown` if one of them is unknown.
 */
export async function screenAll(
  screen: Screen,
  senders: readonly { chain: DepositChain; address: string }[],
): Promise<Verdict> {
  const each = new Map(
    senders.flatMap(({ chain, address }) =>
      address.split(SENDERS_SEPARATOR).map((one) => [`${chain} ${one}`, { chain, address: one }] as const),
    ),
  );
  const verdicts = await Promise.all([...each.values()].map(({ chain, address }) => screen(chain, address)));
  if (verdicts.includes('hit')) return 'hit';
  return verdicts.includes('unknown') ? 'unknown' : 'clear';
}
