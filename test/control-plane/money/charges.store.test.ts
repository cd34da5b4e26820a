// What a room says it has charged against the ledger: read in pieces, nothing is overlooked where one of them ends.
import { afterEach, beforeEach, expect, test } from 'vitest';
import { revenue, wallet } from '../../../control-plane/money/ledger/accounts.ts';
import { type Charge, type ChargesProof, proveCharges } from '../../../control-plane/money/ledger/charges.ts';
import { openWorld, type World } from '../../kit/world.ts';

const KIND = 'test.charge';
const PIECE = 1_000;

let world: World;
let orgId: string;
beforeEach(async () => {
  world = await openWorld();
  ({ orgId } = await world.customer(10_000));
});
afterEach(() => world.close());

const idOf = (number: number): string => `job_${String(number).padStart(6, '0')}`;
const charges = (count: number): Charge[] =>
  Array.from({ length: count }, (_, i) => ({ id: idOf(i), charged_ucents: BigInt(i + 1) }));

async function post(charged: readonly Charge[], kind = KIND): Promise<void> {
  const transfers = charged.map(({ id, charged_ucents: amountUcents }) => ({
    id: `${kind}:${id}`,
    debit: wallet(orgId),
    credit: revenue,
    amountUcents,
    kind,
    subjectId: id,
    effectiveMs: 1,
  }));
  await world.db.tx('test.post', (tx) => world.rooms.ledger.post(tx, kind, transfers));
}

function prove(rows: readonly Charge[]): Promise<ChargesProof> {
  return proveCharges(world.db.read, KIND, async (afterId, limit) =>
    rows.filter(({ id }) => id > afterId).slice(0, limit),
  );
}

const NOTHING = { faults: [], rowless: { ucents: 0n, someIds: [] } };

test.each([0, 1, PIECE - 1, PIECE, PIECE + 1, 2 * PIECE + 1])('%d charges that agree are no fault', async (count) => {
  await post(charges(count));
  await post([{ id: idOf(0), charged_ucents: 5n }], 'other.charge');
  expect(await prove(charges(count))).toEqual(NOTHING);
});

test.each([0, PIECE - 1, PIECE, 2 * PIECE])('of many, the one with number %d is found', async (number) => {
  const all = charges(2 * PIECE + 1);
  const id = idOf(number);
  const others = all.filter((charge) => charge.id !== id);
  await post(all);
  expect(await prove(others)).toEqual({ faults: [], rowless: { ucents: BigInt(number + 1), someIds: [id] } });
  const more = all.map((charge) => (charge.id === id ? { id, charged_ucents: 7_000_000n } : charge));
  const faults = [`${id}: charged 7000000, the ledger says ${number + 1}`];
  expect(await prove(more)).toEqual({ ...NOTHING, faults });
});

test.each([0, PIECE - 1, PIECE, 2 * PIECE])('a row with number %d that was never charged is found', async (number) => {
  const all = charges(2 * PIECE + 1);
  await post(all.filter(({ id }) => id !== idOf(number)));
  const faults = [`${idOf(number)}: charged ${number + 1}, the ledger says 0`];
  expect(await prove(all)).toEqual({ ...NOTHING, faults });
});

test('of charges without a row all are counted, and twenty named', async () => {
  const all = charges(PIECE + 30);
  await post(all);
  const { rowless } = await prove(all.slice(0, PIECE - 1));
  const without = all.slice(PIECE - 1);
  expect(rowless.ucents).toBe(without.reduce((sum, charge) => sum + charge.charged_ucents, 0n));
  expect(rowless.someIds).toEqual(without.slice(0, 20).map(({ id }) => id));
});
