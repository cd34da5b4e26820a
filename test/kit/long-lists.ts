// Thousands of rows in an instant: copies of an instance, a machine and other things that were made in the ordinary way. SQLite only.
import { z } from 'zod';
import { type Db, raw, sql } from '../../control-plane/base/db/db.ts';

const nameRow = z.object({ name: z.string() });

/** Copies of the instance, each a second older than the one before: `i-copy-1` is the newest. Their names are like `run 17`. */
export function copyInstances(db: Db, instanceId: string, count: number): Promise<void> {
  return copy(db, {
    table: 'instances',
    from: instanceId,
    count,
    columns: {
      id: "'i-copy-' || n",
      name: "'run ' || n",
      created_ms: 'created_ms - 1000 * n',
      workload_id: 'null',
      due_ms: 'null',
    },
  });
}

/** Copies of the machine for the same supplier. Their hosts never connect. */
export function copyMachines(db: Db, machineId: string, count: number): Promise<void> {
  return copy(db, {
    table: 'machines',
    from: machineId,
    count,
    columns: {
      id: "printf('01a20bde-34ac-77ab-8487-%012d', n)",
      public_key: "'copy ' || n",
      created_ms: 'created_ms - 1000 * n',
    },
  });
}

/** Copies of the offering, each a second newer than the one before and twice as dear as the offering. Each has a GPU type of its own. */
export function copyOfferings(db: Db, offeringId: string, count: number): Promise<void> {
  return copy(db, {
    table: 'offerings',
    from: offeringId,
    count,
    columns: {
      id: "printf('01a20bde-34ac-77ab-8488-%012d', n)",
      gpu_type: "'COPY_' || n",
      price_ucents_per_hour: '2 * price_ucents_per_hour',
      created_ms: 'created_ms + 1000 * n',
    },
  });
}

/** Copies of the SSH key, for the same organisation. */
export function copySshKeys(db: Db, keyId: string, count: number): Promise<void> {
  return copy(db, {
    table: 'ssh_keys',
    from: keyId,
    count,
    columns: { id: "'key-copy-' || n", name: "'copy ' || n", fingerprint: 'fingerprint || n' },
  });
}

/** Copies of the uploaded file, each newer than the one before. Their content is not stored. */
export function copyFiles(db: Db, fileId: string, count: number): Promise<void> {
  return copy(db, {
    table: 'files',
    from: fileId,
    count,
    columns: { id: "printf('%s-%04d', id, n)", blob_key: 'blob_key || n', filename: "'copy ' || n" },
  });
}

interface Copies {
  table: string;
  from: string;
  count: number;
  /** The expressions of columns that differ; `n` is the number of the copy, from 1. */
  columns: Record<string, string>;
}

async function copy(db: Db, { table, from, count, columns }: Copies): Promise<void> {
  const names = (await db.read.all(nameRow, sql`select name from pragma_table_info(${table})`)).map(({ name }) => name);
  const values = names.map((name) => columns[name] ?? name);
  await db.tx('test.copies', (tx) =>
    tx.run(sql`with recursive numbers (n) as (select 1 union all select n + 1 from numbers where n < ${count})
      insert into ${raw(table)} (${raw(names.join(', '))})
      select ${raw(values.join(', '))} from ${raw(table)}, numbers where id = ${from}`),
  );
}
