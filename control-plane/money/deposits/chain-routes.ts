// The operator's routes for chains, for the balances of deposit addresses, and for lists of sanctioned senders.
import { z } from 'zod';
import { DEPOSIT_CHAINS } from '../../../shared/api/deposit.ts';
import { isoTime } from '../../../shared/clock.ts';
import type { Clock } from '../../../shared/clock.ts';
import { fail, failField } from '../../../shared/errors.ts';
import type { Db } from '../../base/db/db.ts';
import type { Cursors } from '../../base/http/cursors.ts';
import { AnyFields, type Fields, Id, listOf, operator } from '../../base/http/operator.ts';
import { type Route, route } from '../../base/http/route.ts';
import { countBehind } from './accounts-store.ts';
import { addSanctioned, countSanctioned } from './addresses-store.ts';
import { ADDRESSES_BYTES_MAX, ADDRESSES_PER_TURN, addressRoutes } from './address-routes.ts';
import { CHAINS, tokenText } from './chains.ts';
import { allChains, type ChainRow } from './chains-store.ts';
import type { Nodes } from './confirm.ts';
import type { Deposits } from './deposits.ts';
import { readEvmAddress } from '../payouts/address.ts';
import { isSolanaAddress } from './chain-addresses.ts';
import { answered } from './rpc.ts';
import { type Received, receivedAfter } from './transfers-store.ts';

export interface ChainRouteDeps {
  db: Db;
  clock: Clock;
  cursors: Cursors;
  deposits: Deposits;
}

const BASE = '/admin/deposits';
/** Maximum number of sanctioned addresses in one request. The operator imports them from a file with one address a line. */
const SANCTIONED_PER_REQUEST_MAX = 10_000;
/** Maximum number of balances in one answer, because each needs a request to the node. */
const BALANCES_MAX = 100;
const Balances = z.strictObject({ data: z.array(AnyFields), next_after_index: z.int().nullable() });
const Chain = z.enum(DEPOSIT_CHAINS);
const Reason = z.string().trim().min(1).max(1_000);

export function depositChainRoutes(deps: ChainRouteDeps): Route[] {
  return [chainsRoute(deps), rewindRoute(deps), ...addressRoutes(deps), balancesRoute(deps), screeningRoute(deps)];
}

function chainsRoute({ db, deposits }: ChainRouteDeps): Route {
  return route({
    ...operator,
    method: 'GET',
    path: `${BASE}/chains`,
    operationId: 'adminListDepositChains',
    summary:
      'List the chains of deposits, up to which block each was read, why a chain is paused, and how many token accounts are behind it',
    responses: { 200: { description: 'The chains', schema: listOf(AnyFields) } },
    errors: [],
    handler: async () => {
      const rows = new Map((await allChains(db.read)).map((row) => [row.id, row]));
      const data = await Promise.all(
        deposits.watchers.map(async ({ chain }) => {
          const row = rows.get(chain);
          const behind = await countBehind(db.read, chain, CHAINS[chain].family, row?.final_ms ?? 0);
          return { ...chainFields(chain, row), accounts_behind: behind };
        }),
      );
      return { status: 200, body: { data } };
    },
  });
}

function rewindRoute({ deposits }: ChainRouteDeps): Route {
  return route({
    ...operator,
    method: 'POST',
    path: `${BASE}/chains/{id}/rewind`,
    operationId: 'adminRewindDepositChain',
    summary: 'Read a chain again after a given block, e.g. because a final block has changed',
    params: Id,
    body: z.strictObject({ block: z.int().min(0), reason: Reason }),
    responses: {
      200: {
        description:
          'How many transfers above the block do not count any more, and the deposits whose transfers above it are in the books',
        schema: AnyFields,
      },
    },
    errors: ['not_found', 'conflict', 'deposits_unavailable'],
    handler: async ({ params: { id }, body }) => {
      const chain = Chain.safeParse(id).data;
      if (chain === undefined || deposits.nodesOf(chain) === undefined)
        return fail('not_found', `${id} is not a chain of the configuration.`);
      const { orphaned, booked } = await answered(deposits.decisions.rewind(chain, body.block));
      const found = { orphaned_transfers: orphaned, booked_deposits: booked };
      return { status: 200, body: { chain, read_from: body.block + 1, ...found } };
    },
  });
}

function balancesRoute({ db, deposits }: ChainRouteDeps): Route {
  return route({
    ...operator,
    method: 'GET',
    path: `${BASE}/balances`,
    operationId: 'adminListDepositBalances',
    summary:
      'List the present balances of the addresses that got tokens on a chain, by index, for the wallet that collects the tokens',
    query: z.strictObject({
      chain: Chain,
      after_index: z.coerce.number().int().min(-1).default(-1),
      limit: z.coerce.number().int().min(1).max(BALANCES_MAX).default(BALANCES_MAX),
    }),
    responses: { 200: { description: 'Some of the balances, and where the next ones begin', schema: Balances } },
    errors: ['deposits_unavailable'],
    handler: async ({ query: { chain, after_index: after, limit } }) => {
      const nodes = deposits.nodesOf(chain) ?? failField('chain', 'must be a chain of the configuration');
      const rows = await receivedAfter(db.read, chain, after, limit);
      const data = await answered(Promise.all(rows.map((row) => balanceFields(row, nodes))));
      const positions = new Set(rows.map(({ position }) => position));
      const nextIndex = positions.size < limit ? null : Math.max(...positions);
      return { status: 200, body: { data, next_after_index: nextIndex } };
    },
  });
}

function screeningRoute({ db, clock }: ChainRouteDeps): Route {
  return route({
    ...operator,
    method: 'POST',
    path: `${BASE}/screening`,
    operationId: 'adminImportSanctioned',
    summary: 'Add addresses from which no tokens are accepted',
    bodyBytesMax: ADDRESSES_BYTES_MAX,
    body: z.strictObject({
      source: z.string().trim().min(1).max(255),
      addresses: z.array(z.string()).min(1).max(SANCTIONED_PER_REQUEST_MAX),
    }),
    responses: { 200: { description: 'How many addresses were new, and how many there are', schema: AnyFields } },
    errors: [],
    handler: async ({ body: { source, addresses } }) => {
      const read = new Set<string>();
      for (const [i, text] of addresses.entries()) {
        if (i % ADDRESSES_PER_TURN === 0) await clock.nextTurn();
        const address = readEvmAddress(text) ?? (isSolanaAddress(text) ? text : undefined);
        read.add(address ?? failField(`addresses[${i}]`, `must be an address of a chain of deposits: ${text}`));
      }
      const added = await db.tx('deposits.sanction', (tx) => addSanctioned(tx, [...read], source, clock.now()));
      return { status: 200, body: { added, total: await countSanctioned(db.read) } };
    },
  });
}

function chainFields(chain: string, row: ChainRow | undefined): Fields {
  const time = (ms: number | null | undefined): string | null => (ms === null || ms === undefined ? null : isoTime(ms));
  return {
    chain,
    paused: row?.paused_reason ?? null,
    head: row?.head_number ?? null,
    head_at: time(row?.head_ms),
    final: row?.final_number ?? null,
    final_at: time(row?.final_ms),
    updated_at: time(row?.updated_ms),
  };
}

async function balanceFields(row: Received, { first }: Nodes): Promise<Fields> {
  const { position: index, address, chain, asset, units } = row;
  const balance = tokenText(await first.balance(asset, address));
  return { index, address, chain, asset, received: tokenText(units), balance };
}
