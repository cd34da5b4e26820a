// The operator's routes for the addresses that deposits are paid to.
import { z } from 'zod';
import { pageSchema } from '../../../shared/api/page.ts';
import { type Clock, isoTime } from '../../../shared/clock.ts';
import { failField } from '../../../shared/errors.ts';
import type { Db } from '../../base/db/db.ts';
import type { Cursors } from '../../base/http/cursors.ts';
import { AnyFields, type Fields, listParameters, operator } from '../../base/http/operator.ts';
import { type Route, route } from '../../base/http/route.ts';
import {
  addressesAfter,
  type AddressRow,
  insertAddresses,
  knownAddresses,
  retireFree,
  takePositions,
} from './addresses-store.ts';
import { readEvmAddress } from '../payouts/address.ts';
import { readSolanaAddress } from './chain-addresses.ts';

interface AddressRouteDeps {
  db: Db;
  clock: Clock;
  cursors: Cursors;
}

const PATH = '/admin/deposits/addresses';
const ADDRESSES_PER_REQUEST_MAX = 10_000;
/** Limit of a body with the largest number of addresses. */
export const ADDRESSES_BYTES_MAX = 1024 ** 2;
/** A check of one address takes a tenth of a millisecond. Other work of the process goes on after this number of them. */
export const ADDRESSES_PER_TURN = 100;

export function addressRoutes(deps: AddressRouteDeps): Route[] {
  return [listRoute(deps), importRoute(deps), retireRoute(deps)];
}

function listRoute({ db, cursors }: AddressRouteDeps): Route {
  return route({
    ...operator,
    method: 'GET',
    path: PATH,
    operationId: 'adminListDepositAddresses',
    summary: 'List the addresses of deposits on EVM chains or on Solana, by index',
    query: z.strictObject({ ...listParameters, family: z.enum(['evm', 'solana']).default('evm') }),
    responses: { 200: { description: 'A page', schema: pageSchema(AnyFields) } },
    errors: [],
    handler: async ({ query: { cursor, limit, family } }) => {
      const name = `admin/deposit-addresses/${family}`;
      const after = cursors.read(name, cursor)?.createdMs ?? -1;
      const rows = await addressesAfter(db.read, family, after, limit + 1);
      const at = ({ position }: AddressRow) => ({ createdMs: position, id: '' });
      return { status: 200, body: cursors.pageOf(name, rows, limit, { at, show: addressFields }) };
    },
  });
}

function importRoute({ db, clock }: AddressRouteDeps): Route {
  return route({
    ...operator,
    method: 'POST',
    path: PATH,
    operationId: 'adminImportDepositAddresses',
    summary: 'Import addresses on Solana, each for one deposit. Either all addresses are imported or none',
    bodyBytesMax: ADDRESSES_BYTES_MAX,
    body: z.strictObject({ addresses: z.array(z.string()).min(1).max(ADDRESSES_PER_REQUEST_MAX) }),
    responses: { 200: { description: 'How many', schema: AnyFields } },
    errors: [],
    handler: async ({ body: { addresses } }) => {
      const places = new Map<string, number>();
      for (const [i, address] of addresses.entries()) {
        if (i % ADDRESSES_PER_TURN === 0) await clock.nextTurn();
        assertAddress(address, i);
        if (places.has(address)) failField(`addresses[${i}]`, `must not be in the list twice: ${address}`);
        places.set(address, i);
      }
      await db.tx('deposits.import', async (tx) => {
        await tx.lock('deposit_family', 'solana');
        const position = await takePositions(tx, 'solana', addresses.length);
        for (const known of await knownAddresses(tx, 'solana', addresses))
          failField(`addresses[${places.get(known)}]`, `must not be imported again: ${known}`);
        await insertAddresses(tx, 'solana', addresses, { position, nowMs: clock.now() });
      });
      return { status: 200, body: { imported: addresses.length } };
    },
  });
}

function retireRoute({ db }: AddressRouteDeps): Route {
  return route({
    ...operator,
    method: 'POST',
    path: `${PATH}/retire`,
    operationId: 'adminRetireDepositAddresses',
    summary: 'Stop using the free addresses on Solana for new deposits, e.g. after a backup was restored',
    body: z.strictObject({ reason: z.string().trim().min(1).max(1_000) }),
    responses: { 200: { description: 'How many', schema: AnyFields } },
    errors: [],
    handler: async () => {
      const retired = await db.tx('deposits.retire', async (tx) => {
        await tx.lock('deposit_family', 'solana');
        return retireFree(tx, 'solana');
      });
      return { status: 200, body: { retired } };
    },
  });
}

function assertAddress(address: string, i: number): void {
  if (readSolanaAddress(address) !== undefined) return;
  const what = readEvmAddress(address) === undefined ? '' : ', and this is one of an EVM chain';
  failField(`addresses[${i}]`, `must be the address of a key pair on Solana${what}: ${address.slice(0, 64)}`);
}

function addressFields(row: AddressRow): Fields {
  return {
    family: row.family,
    index: row.position,
    address: row.address,
    key: row.key_fingerprint,
    deposit_id: row.deposit_id,
    created_at: isoTime(row.created_ms),
  };
}
