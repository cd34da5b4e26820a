// Statements of one turn travel together: one Sync, each text read once, and a failure that ends all behind it.
import { Client, types } from 'pg';
import { afterEach, beforeEach, expect, inject, test } from 'vitest';
import { type Ask, openPipelines } from '../../../../control-plane/base/db/postgres-pipeline.ts';
import { createDatabase } from '../../../kit/databases.ts';

const INT8 = 20;
const BOX = 603;

let client: Client;
let ask: Ask;
beforeEach(async () => {
  const getTypeParser = (id: number): unknown => {
    if (id === INT8) return BigInt;
    if (id !== BOX) return types.getTypeParser(id);
    return () => {
      throw new Error('a box cannot be read');
    };
  };
  client = new Client({
    connectionString: await createDatabase(inject('postgresUrl') ?? ''),
    pipeline: true,
    types: { getTypeParser } as never,
  });
  client.on('error', () => undefined);
  await client.connect();
  ask = openPipelines();
});
afterEach(() => client.end());

/** Counts messages of the server from now on. */
function counted(message: 'readyForQuery' | 'rowDescription' | 'parseComplete'): () => number {
  let count = 0;
  const { connection } = client as unknown as { connection: NodeJS.EventEmitter };
  connection.on(message, () => (count += 1));
  return () => count;
}

const ADD = { text: 'select cast($1 as bigint) + 1 as sum', name: 'add' };
const QUOTIENT = { text: 'select 1 / cast($1 as bigint) as quotient', name: 'quotient' };

test('statements of one turn have one Sync, and those of a later turn another one', async () => {
  const syncs = counted('readyForQuery');
  await Promise.all([
    ask(client, { text: 'begin' }),
    ask(client, { ...ADD, values: [1n] }),
    ask(client, { text: 'commit' }),
  ]);
  expect(syncs()).toBe(1);
  await ask(client, { ...ADD, values: [1n] });
  expect(syncs()).toBe(2);
});

test('a statement with a name is read and described once for a connection, also if one packet has it twice', async () => {
  const parsed = counted('parseComplete');
  const described = counted('rowDescription');
  const sums = async (...values: bigint[]): Promise<unknown[]> => {
    const answers = await Promise.all(values.map((value) => ask(client, { ...ADD, values: [value] })));
    return answers.flatMap(({ rows }) => rows);
  };
  expect(await sums(1n, 2n)).toEqual([{ sum: 2n }, { sum: 3n }]);
  expect(await sums(3n)).toEqual([{ sum: 4n }]);
  expect([parsed(), described()]).toEqual([1, 1]);
});

test('a statement without a name may have another text and other columns each time', async () => {
  const answers = [ask(client, { text: 'select 1 as a' }), ask(client, { text: "select 'x' as b, null as c" })];
  expect((await Promise.all(answers)).map(({ rows }) => rows)).toEqual([[{ a: 1 }], [{ b: 'x', c: null }]]);
});

test('a failure ends the statements behind it, and not those before it', async () => {
  const [first, failed, behind] = await Promise.allSettled([
    ask(client, { ...ADD, values: [1n] }),
    ask(client, { ...QUOTIENT, values: [0n] }),
    ask(client, { ...ADD, values: [2n] }),
  ]);
  expect(first).toMatchObject({ status: 'fulfilled', value: { rows: [{ sum: 2n }] } });
  expect(failed).toMatchObject({ status: 'rejected', reason: { code: '22012' } });
  expect(behind).toMatchObject({ status: 'rejected', reason: { code: '22012' } });
});

test('a statement that failed, or was behind one that failed, works the next time', async () => {
  const failing = [ask(client, { ...QUOTIENT, values: [0n] }), ask(client, { ...ADD, values: [1n] })];
  await Promise.allSettled(failing);
  expect((await ask(client, { ...QUOTIENT, values: [1n] })).rows).toEqual([{ quotient: 1n }]);
  expect((await ask(client, { ...ADD, values: [1n] })).rows).toEqual([{ sum: 2n }]);
});

test('a text that the server cannot read fails, and the next statement works', async () => {
  await expect(ask(client, { text: 'selekt 1', name: 'wrong' })).rejects.toMatchObject({ code: '42601' });
  expect((await ask(client, { ...ADD, values: [1n] })).rows).toEqual([{ sum: 2n }]);
});

test('an answer has the number of rows that were read or changed', async () => {
  const texts = [
    'begin',
    'create table t (n bigint)',
    'insert into t values (1), (2)',
    'update t set n = 3',
    'select n from t',
    'commit',
  ];
  const answers = await Promise.all(texts.map((text) => ask(client, { text })));
  expect(answers.map(({ rowCount }) => rowCount)).toEqual([0, 0, 2, 2, 2, 0]);
});

test('a text without a statement is answered, and so is the next statement', async () => {
  const answers = [ask(client, { text: '-- nothing' }), ask(client, { ...ADD, values: [1n] })];
  expect(await Promise.all(answers)).toEqual([
    { rows: [], rowCount: 0 },
    { rows: [{ sum: 2n }], rowCount: 1 },
  ]);
});

test('text, large numbers, bytes and nothing arrive as they were sent', async () => {
  const values = [`it's "{a\\b}"\n€`, 2n ** 62n, new Uint8Array([0, 255, 39]).subarray(1), null];
  const text =
    'select $1 as text, cast($2 as bigint) as number, cast($3 as bytea) as bytes, cast($4 as text) as nothing';
  const { rows } = await ask(client, { text, values });
  expect(rows).toEqual([{ text: values[0], number: values[1], bytes: Buffer.from([255, 39]), nothing: null }]);
});

test('a row that cannot be decoded fails its own statement only', async () => {
  const [box, next] = await Promise.allSettled([
    ask(client, { text: "select box '(1,1),(0,0)' as box" }),
    ask(client, { ...ADD, values: [1n] }),
  ]);
  expect(box).toMatchObject({ status: 'rejected', reason: { message: 'a box cannot be read' } });
  expect(next).toMatchObject({ status: 'fulfilled', value: { rows: [{ sum: 2n }] } });
});

test('a connection that is lost fails everything that was asked, and everything after it', async () => {
  const asked = [
    ask(client, { text: 'select pg_terminate_backend(pg_backend_pid())' }),
    ask(client, { ...ADD, values: [1n] }),
  ];
  const settled = await Promise.allSettled(asked);
  expect(settled.map(({ status }) => status)).toEqual(['rejected', 'rejected']);
  await expect(ask(client, { ...ADD, values: [1n] })).rejects.toBeInstanceOf(Error);
});
