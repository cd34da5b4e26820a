// The settings on which all control planes of a database must agree. Each of them that serves writes a digest of each such setting. So another one
// that would take over with other prices is known before it does, and no value leaves the process.
import { createHash } from 'node:crypto';
import { z } from 'zod';
import { int, json, text } from './columns.ts';
import { type Db, type Query, sql } from './db.ts';

/** Name of a setting -> digest of its value. */
export type Digests = Readonly<Record<string, string>>;

/** A control plane that lives and has other values than the one that it was compared with. */
export interface Difference {
  /** Its URL, or its id if it has given none. */
  member: string;
  settings: string[];
  /** Since when both have these values. */
  sinceMs: number;
}

const DIGEST_CHARS = 16;
const Digests = z.record(z.string(), z.string());
const SettingsRow = z.object({ id: text, settings: json(Digests), written_ms: int, url: text.nullable() });
type SettingsRow = z.infer<typeof SettingsRow>;
const HolderRow = z.object({ holder: text });

/** Each value is data. The order of the members of an object does not count. */
export function digestsOf(values: Readonly<Record<string, unknown>>): Digests {
  const digest = (value: unknown): string =>
    createHash('sha256')
      .update(JSON.stringify(value, plain) ?? '')
      .digest('hex')
      .slice(0, DIGEST_CHARS);
  return Object.fromEntries(Object.entries(values).map(([name, value]) => [name, digest(value)]));
}

/** Writes what the control plane with this id has, and forgets those that have ended. */
export async function writeSettings(db: Db, id: string, own: { digests: Digests; nowMs: number }): Promise<void> {
  const settings = JSON.stringify(own.digests);
  await db.tx('agreement.write', (tx) =>
    tx.run(
      sql`insert into control_plane_settings (id, settings, written_ms) values (${id}, ${settings}, ${own.nowMs})
          on conflict (id) do update set settings = excluded.settings, written_ms = excluded.written_ms
          where control_plane_settings.settings <> excluded.settings`,
    ),
  );
  await db.tx('agreement.forget', (tx) =>
    tx.run(sql`delete from control_plane_settings where id <> ${id} and id not in (select holder from leases)`),
  );
}

/** The living control planes beside the one with this id that have other values than these. One that stands by has no id here. */
export async function differencesFrom(query: Query, id: string | undefined, digests: Digests): Promise<Difference[]> {
  const rows = await living(query);
  return rows.filter((row) => row.id !== id).flatMap((row) => differenceOf(row, { digests, sinceMs: row.written_ms }));
}

/** The living control planes that have other values than the primary, as operators see them. */
export async function differencesFromPrimary(query: Query): Promise<Difference[]> {
  const [rows, lease] = [
    await living(query),
    await query.one(HolderRow, sql`select holder from leases where name = 'primary'`),
  ];
  const primary = rows.find(({ id }) => id === lease?.holder);
  if (primary === undefined) return [];
  const own = { digests: primary.settings, sinceMs: primary.written_ms };
  return rows.flatMap((row) => differenceOf(row, own));
}

function living(query: Query): Promise<SettingsRow[]> {
  return query.all(
    SettingsRow,
    sql`select s.id, s.settings, s.written_ms, c.url
        from control_plane_settings s left join control_planes c on c.id = s.id
        where s.id in (select holder from leases) order by s.id`,
  );
}

/** Two versions may know different settings. Only those that both know are compared. */
function differenceOf(row: SettingsRow, own: { digests: Digests; sinceMs: number }): Difference[] {
  const { settings: digests } = row;
  const settings = Object.keys(own.digests).filter(
    (name) => digests[name] !== undefined && digests[name] !== own.digests[name],
  );
  if (settings.length === 0) return [];
  return [{ member: row.url ?? row.id, settings, sinceMs: Math.max(row.written_ms, own.sinceMs) }];
}

/** JSON has neither maps nor large numbers, and orders members as they were made. */
function plain(_name: string, value: unknown): unknown {
  if (typeof value === 'bigint') return String(value);
  if (typeof value !== 'object' || value === null || Array.isArray(value)) return value;
  const members: [string, unknown][] = value instanceof Map ? [...value] : Object.entries(value);
  return Object.fromEntries(members.toSorted(([a], [b]) => (a < b ? -1 : 1)));
}
