// The contract of Db on both drivers: what a transaction guarantees and what it refuses.
import { afterEach, beforeEach, describe, expect, test } from 'vitest';
import { z } from 'zod';
import { int, text, ucents } from '../../../../control-plane/base/db/columns.ts';
import { type Db, sql, type Tx } from '../../../../control-plane/base/db/db.ts';
import { isFree, releaseLease, renewLease, seeLease, takeLease } from '../../../../control-plane/base/db/lease.ts';
import { SCHEMA } from '../../../../control-plane/foundation.ts';
import { openTestDb } from '../../../kit/databases.ts';

let db: Db;
beforeEach(async () => {
  db = await openTestDb(SCHEMA.filter(({ room }) => room === 'base/db'));
  await db.tx('setup', (tx) => tx.run(sql`create table counters (name text primary key, value bigint not null)`));
  await db.tx('setup', (tx) => tx.run(sql`create table orgs (id text primary key)`));
  await db.tx('setup', (tx) => tx.run(sql`create table suppliers (id text primary key)`));
  await db.tx('setup', (tx) => tx.run(sql`insert into orgs (id) values ('o-1'), ('o-2')`));
  await db.tx('setup', (tx) => tx.run(sql`insert into counters (name, value) values ('a', 0)`));
});
afterEach(() => db.close());

const Value = z.object({ value: int });
const Id = z.object({ id: text.nullable() });
const read = async (name = 'a'): Promise<number | undefined> =>
  (await db.read.one(Value, sql`select value from counters where name = ${name}`))?.value;

describe('transactions', () => {
  test('that lock the same root run one after another', async () => {
    const add = (): Promise<void> =>
      db.tx('add', async (tx) => {
        await tx.lock('org', 'o-1');
        const before = await tx.one(Value, sql`select value from counters where name = 'a'`);
        await tx.run(sql`update counters set value = ${(before?.value ?? 0) + 1} where name = 'a'`);
      });
    await Promise.all(Array.from({ length: 30 }, add));
    expect(await read()).toBe(30);
  });

  test('that throw change nothing, and other bodies of the same batch are kept', async () => {
    const fine = db.tx('fine', (tx) => tx.run(sql`update counters set value = value + 1 where name = 'a'`));
    const broken = db.tx('broken', async (tx) => {
      await tx.run(sql`update counters set value = 100 where name = 'a'`);
      throw new Error('no');
    });
    await expect(broken).rejects.toThrow('no');
    await fine;
    expect(await read()).toBe(1);
  });

  test('that fail in SQL do not roll back other bodies of the same batch', async () => {
    const broken = db.tx('broken', (tx) => tx.run(sql`insert into counters (name, value) values ('a', 1)`));
    const fine = db.tx('fine', (tx) => tx.run(sql`update counters set value = 5 where name = 'a'`));
    await expect(broken).rejects.toThrow(/unique/i);
    await fine;
    expect(await read()).toBe(5);
  });

  test('return the number of changed rows, so that a stale compare-and-set is detected', async () => {
    const set = (from: number): Promise<number> =>
      db.tx('cas', (tx) => tx.run(sql`update counters set value = 9 where name = 'a' and value = ${from}`));
    expect(await set(0)).toBe(1);
    expect(await set(0)).toBe(0);
  });

  test('refuse another transaction or a committed read inside', async () => {
    const nested = db.tx('outer', () => db.tx('inner', async () => undefined));
    await expect(nested).rejects.toMatchObject({ code: 'tx_nested' });
    const reading = db.tx('outer', () => db.read.all(Value, sql`select value from counters`));
    await expect(reading).rejects.toMatchObject({ code: 'tx_nested' });
  });

  test('lock their roots in one order, and a root that is held again is skipped', async () => {
    const wrong = db.tx('wrong', async (tx) => {
      await tx.lock('supplier', 's-1');
      await tx.lock('org', 'o-1');
    });
    await expect(wrong).rejects.toMatchObject({ code: 'lock_order' });
    await db.tx('right', async (tx) => {
      await tx.lock('org', 'o-2', 'o-1');
      await tx.lock('org', 'o-1');
    });
  });

  test('hold the first row that nobody else holds, or none if others hold all, without waiting', async () => {
    const begun = Promise.withResolvers<void>();
    const end = Promise.withResolvers<void>();
    const firstOf = async (ids: string[], still = sql`1 = 1`): Promise<string | undefined> => {
      const found = await db.tx('first', (tx) => tx.one(Id, tx.firstUnlocked('org', ids, still)));
      return found?.id ?? undefined;
    };
    expect([await firstOf(['o-2', 'o-1']), await firstOf(['o-1', 'o-2']), await firstOf([])]).toEqual([
      'o-2',
      'o-1',
      undefined,
    ]);
    const wrong = db.tx('wrong', async (tx) => {
      await tx.lock('supplier', 's-1');
      tx.firstUnlocked('org', ['o-1'], sql`1 = 1`);
    });
    await expect(wrong).rejects.toMatchObject({ code: 'lock_order' });
    // On SQLite, bodies run one after another.
    if (db.dialect === 'sqlite') return;
    expect(await firstOf(['o-1', 'o-2'], sql`orgs.id > 'o-1'`)).toBe('o-2');
    const busy = db.tx('busy', async (tx) => {
      await tx.one(Id, tx.firstUnlocked('org', ['o-1', 'o-2'], sql`1 = 1`));
      begun.resolve();
      await end.promise;
    });
    await begun.promise;
    // The first look at 'o-2' has locked it too if the statement locks more than it returns.
    expect([await firstOf(['o-1', 'o-2']), await firstOf(['o-1'])]).toEqual(['o-2', undefined]);
    end.resolve();
    await busy;
  });

  describe('with writes that run together', () => {
    const add = (tx: Tx, name: string): Promise<number> =>
      tx.run(sql`insert into counters (name, value) values (${name}, 1)`);
    const raise = (tx: Tx, name: string): Promise<number> =>
      tx.run(sql`update counters set value = value + 1 where name = ${name}`);

    test('tell each of them how many rows it has changed, also those that are asked for after an answer', async () => {
      const changed = await db.tx('together', (tx) =>
        tx.together(async (writes) => {
          const first = await Promise.all([raise(writes, 'a'), raise(writes, 'absent'), add(writes, 'new')]);
          return [...first, await raise(writes, 'new')];
        }),
      );
      expect(changed).toEqual([1, 0, 1, 1]);
      expect([await read('a'), await read('new')]).toEqual([1, 2]);
    });

    test('tell of inserts how many rows there are, whether the server counts them or not', async () => {
      const again = sql`insert into counters (name, value) values ('a', 1) on conflict (name) do nothing`;
      const two = sql`insert into counters (name, value) values ('x', 1), ('y', 2)`;
      const changed = await db.tx('together', (tx) =>
        tx.together(async (writes) => [
          ...(await Promise.all([add(writes, 'new'), writes.run(again), raise(writes, 'a'), writes.run(two)])),
          ...(await Promise.all([add(writes, 'v'), add(writes, 'w')])),
        ]),
      );
      expect(changed).toEqual([1, 0, 1, 2, 1, 1]);
    });

    test('are undone as a whole if one of them fails', async () => {
      const writes = db.tx('together', (tx) =>
        tx.together((joined) => Promise.all([raise(joined, 'a'), add(joined, 'a')])),
      );
      await expect(writes).rejects.toThrow(/unique/i);
      expect(await read('a')).toBe(0);
    });

    test('refuse what is no plain write, which PostgreSQL cannot join', async () => {
      const reading = db.tx('together', (tx) => tx.together((joined) => joined.run(sql`select 1`)));
      await expect(reading).rejects.toMatchObject({ code: 'bad_value' });
    });
  });

  test('that only read see one moment, whatever is written meanwhile', async () => {
    const raise = (): Promise<number> =>
      db.tx('raise', (tx) => tx.run(sql`update counters set value = value + 1 where name = 'a'`));
    const statement = sql`select value from counters where name = 'a'`;
    const seen = await db.snapshot('twice', async (query) => {
      const first = await query.one(Value, statement);
      const raising = db.dialect === 'postgres' ? raise() : undefined;
      // The other transaction must have its commit before the second read.
      if (raising !== undefined) await raising.catch(() => undefined);
      return [first?.value, (await query.one(Value, statement))?.value];
    });
    expect(seen).toEqual([0, 0]);
    expect(await read()).toBe(db.dialect === 'postgres' ? 1 : 0);
  });

  test('cannot be used after their end', async () => {
    let late: (() => Promise<unknown>) | undefined;
    await db.tx('leak', async (tx) => {
      late = () => tx.run(sql`update counters set value = 7 where name = 'a'`);
    });
    await expect(late?.()).rejects.toMatchObject({ code: 'tx_over' });
    expect(await read()).toBe(0);
  });
});

describe('values', () => {
  test('keep every microcent of an amount', async () => {
    const large = 9_007_199_254_740_993n;
    await db.tx('large', (tx) => tx.run(sql`update counters set value = ${large}`));
    const row = await db.read.one(z.object({ value: ucents }), sql`select value from counters`);
    expect(row?.value).toBe(large);
    await expect(read()).rejects.toThrow(/whole number/);
  });

  test.each([1.5, Number.NaN, 2 ** 53, undefined, new Date(0), {}])(
    'of a kind that no column stores are refused: %s',
    async (value) => {
      await expect(db.tx('bad', (tx) => tx.run(sql`update counters set value = ${value}`))).rejects.toMatchObject({
        code: 'bad_value',
      });
    },
  );
});

describe('a lease', () => {
  const one = { name: 'primary', holder: 'one' };
  const two = { name: 'primary', holder: 'two' };

  test('keeps its epoch while it is renewed, and raises it with every new holder', async () => {
    const held = await takeLease(db, one, undefined);
    expect(held).toEqual({ ...one, epoch: 1 });
    if (held === undefined) return;
    const before = await seeLease(db, 'primary');
    expect(await renewLease(db, held)).toBe(true);
    // The row has changed since it was read: the holder is alive.
    expect(await takeLease(db, two, before)).toBeUndefined();
    expect(await takeLease(db, two, await seeLease(db, 'primary'))).toEqual({ ...two, epoch: 2 });
    expect(await renewLease(db, held)).toBe(false);
  });

  test('is free once it is released, and only its holder can release it', async () => {
    const held = await takeLease(db, one, undefined);
    if (held === undefined) throw new Error('it was taken');
    await releaseLease(db, { ...two, epoch: 1 });
    expect(isFree(await seeLease(db, 'primary'))).toBe(false);
    await releaseLease(db, held);
    expect(isFree(await seeLease(db, 'primary'))).toBe(true);
    expect(await takeLease(db, two, await seeLease(db, 'primary'))).toEqual({ ...two, epoch: 2 });
  });
});
