// Organisations with an API key and money, for tests and benches of paid requests that have a database and no API.
import { openAccountsAlone } from './accounts.ts';
import type { Db } from '../../control-plane/base/db/db.ts';
import type { NewReceipt } from '../../control-plane/models/gateway/store.ts';
import { funding, wallet } from '../../control-plane/money/ledger/accounts.ts';
import type { Ledger } from '../../control-plane/money/ledger/ledger.ts';
import type { Clock } from '../../shared/clock.ts';
import type { Ids } from '../../shared/ids.ts';

export interface Payer {
  orgId: string;
  principalId: string;
}

export async function makePayers(
  count: number,
  deps: { db: Db; clock: Clock; ids: Ids; ledger: Ledger },
): Promise<Payer[]> {
  const { db, ledger } = deps;
  const accounts = openAccountsAlone(deps);
  const payers: Payer[] = [];
  for (let i = 0; i < count; i += 1) {
    const { id: orgId } = await accounts.createOrg(`payer ${i}`);
    const key = await accounts.createKey({ orgId, name: 'test', scopes: ['full_access'], expiresMs: null });
    const fund = { debit: funding, credit: wallet(orgId), amountUcents: 10n ** 15n, kind: 'funding.manual' };
    const transfer = { ...fund, id: `fund:${orgId}`, subjectId: orgId, effectiveMs: 1 };
    await db.tx('test.fund', (tx) => ledger.post(tx, transfer.id, [transfer]));
    payers.push({ orgId, principalId: key.id });
  }
  return payers;
}

/** The receipt of a new request. The first world of a test serves it. */
export function newReceipt(
  { orgId, principalId }: Payer,
  facts: Pick<NewReceipt, 'id' | 'held_ucents' | 'opened_ms'>,
): NewReceipt {
  const named = { request_id: 'req_test', model_id: 'test/chat', tier: 'serverless', member: 'member-1' } as const;
  return { ...named, ...facts, org_id: orgId, api_key_id: principalId, end_user: null, metadata: null };
}
