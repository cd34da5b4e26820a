// The walls between rooms, as pure functions from files to broken rules: import order, package doors, table owners.
import { posix } from 'node:path';
import { DAEMONS, DOORS, type Daemon } from './house-plan.ts';
import { createdTables, withoutComments, type SourceFile } from './sources.ts';

/** One sentence for each import that goes against the order of the house, or leaves the plan. */
export function importOrder(files: readonly SourceFile[]): string[] {
  return sources(files).flatMap((file) => {
    const place = placeOf(file.path);
    if (place === 'outside') return [`${file.path}: no such room; add it to test/kit/house-plan.ts or move the file.`];
    return importsOf(file).flatMap((target) => {
      const reason = target.startsWith('.')
        ? whyNot(file.path, posix.join(posix.dirname(file.path), target))
        : undefined;
      return reason === undefined ? [] : [`${file.path} imports ${target}: ${reason}.`];
    });
  });
}

/** One sentence for each group of files that import each other, types included: none of them can be read first. */
export function importCircles(files: readonly SourceFile[]): string[] {
  const imports = new Map(
    sources(files).map((file): [string, string[]] => {
      const targets = importsOf(file).filter((target) => target.startsWith('.'));
      return [file.path, targets.map((target) => posix.join(posix.dirname(file.path), target))];
    }),
  );
  return [...imports.keys()].flatMap((start) => {
    const way = wayBack(start, imports);
    // A circle is reported once, by the first of its files in the alphabet.
    return way === undefined || way.some((path) => path < start)
      ? []
      : [`${way.join(' imports ')}: break this circle.`];
  });
}

/** The shortest way along imports from a file back to itself. */
function wayBack(start: string, imports: ReadonlyMap<string, readonly string[]>): string[] | undefined {
  const ways: string[][] = [[start]];
  const seen = new Set<string>();
  for (let way = ways.shift(); way !== undefined; way = ways.shift()) {
    for (const next of imports.get(way.at(-1) ?? '') ?? []) {
      if (next === start) return [...way, start];
      if (!seen.has(next)) ways.push([...way, next]);
      seen.add(next);
    }
  }
  return undefined;
}

/** One sentence for each outside package that enters by another way than its door. */
export function packageDoors(files: readonly SourceFile[]): string[] {
  return sources(files).flatMap((file) =>
    importsOf(file).flatMap((target) => {
      const rule = DOORS.find(({ packages }) =>
        packages.some((name) => target === name || target.startsWith(`${name}/`)),
      );
      if (rule === undefined || rule.doors.some((door) => opens(door, file.path))) return [];
      return [`${file.path} imports ${target}: its door is ${rule.doors.join(', ')}, because ${rule.why}.`];
    }),
  );
}

/** They read real time for all others. */
const CLOCKS = ['shared/clock.ts', 'control-plane/console/web/core/clock.ts'];

/** Settings are read and validated in one place, and time is handed in. */
export function ambientState(files: readonly SourceFile[]): string[] {
  return sources(files).flatMap((file) => {
    const code = withoutComments(file.text);
    const broken: string[] = [];
    if (/\bprocess\.env\b/.test(code) && !file.path.endsWith('/config.ts')) {
      broken.push(`${file.path} reads process.env: only config.ts does, so that every setting is validated and known.`);
    }
    if (/\bnew Date\(\)|\bDate\.now\(\)/.test(code) && !CLOCKS.includes(file.path)) {
      broken.push(
        `${file.path} asks Date for the time: use the Clock that was handed in (tests run on a virtual one), in the console serviceNow().`,
      );
    }
    if (/^(export )?(let|var) |^(export )?const \w+.*= new (Map|Set|WeakMap|WeakSet)(<.*>)?\(\)/m.test(code)) {
      broken.push(
        `${file.path} keeps state in the module: put it into openX(deps), two houses may live in one process.`,
      );
    }
    return broken;
  });
}

/** A table is named in SQL only in its owner's room; others call the owner's function with the caller's `tx`. */
export function tableOwners(files: readonly SourceFile[]): string[] {
  const owners = new Map(
    DAEMONS.flatMap(({ folder, rooms }) =>
      rooms.flatMap(({ path, tables }) => tables.map((table): [string, string] => [table, `${folder}/${path}/`])),
    ),
  );
  return sources(files).flatMap((file) =>
    [...new Set(tablesIn(file))].flatMap((table) => {
      const owner = owners.get(table);
      if (owner === undefined || file.path.startsWith(owner)) return [];
      return [`${file.path} names the table ${table} in SQL: it belongs to ${owner}, call a function of that room.`];
    }),
  );
}

/** Migrations live in their room, are numbered, and create no table of another room. */
export function migrations(files: readonly SourceFile[]): string[] {
  return files
    .filter(({ path }) => path.endsWith('.sql') && !path.startsWith('test/'))
    .flatMap((file) => {
      const parts = /^(?<folder>[^/]+)\/(?<room>.+)\/migrations\/\d{4}-[a-z0-9-]+\.sql$/.exec(file.path)?.groups;
      const rooms = DAEMONS.find(({ folder }) => folder === parts?.['folder'])?.rooms ?? [];
      const room = rooms.find(({ path }) => path === parts?.['room']);
      if (room === undefined) return [`${file.path}: SQL files are <room>/migrations/NNNN-name.sql of a planned room.`];
      return createdTables(file.text).flatMap((table) => {
        const owner = rooms.find(({ tables }) => tables.includes(table));
        return owner === undefined || owner === room
          ? []
          : [`${file.path} creates ${table}, which ${owner.path} creates.`];
      });
    });
}

const KEYWORDS = String.raw`\b(?:from|join|into|update|table)\s+(?:only\s+|if\s+(?:not\s+)?exists\s+)?`;

function tablesIn(file: SourceFile): string[] {
  const code = file.path.endsWith('.sql') ? file.text.replace(/--.*$/gm, '') : withoutComments(file.text);
  const first = [...code.matchAll(new RegExp(`${KEYWORDS}"?([a-z_]+)`, 'gi'))];
  const afterComma = [...code.matchAll(/\bfrom\s+[a-z_]+(?:\s+(?:as\s+)?[a-z_]+)?\s*,\s*"?([a-z_]+)/gi)];
  return [...first, ...afterComma].flatMap(([, table]) => (table === undefined ? [] : [table.toLowerCase()]));
}

function sources(files: readonly SourceFile[]): SourceFile[] {
  return files.filter(({ path }) => /^(agent|control-plane|shared)\/.*\.(tsx?|sql)$/.test(path));
}

/** What a source imports, as it is written there: `../db/db.ts`, `node:path`. Comments do not count. */
export function importsOf(file: SourceFile): string[] {
  if (!/\.tsx?$/.test(file.path)) return [];
  const statements =
    /(?:^|\n)\s*(?:(?:import|export)\b[^;'"]*?\bfrom\s*|import\s*)['"]([^'"]+)['"]|\bimport\(\s*['"]([^'"]+)['"]/g;
  return [...withoutComments(file.text).matchAll(statements)].flatMap(([, fixed, lazy]) => fixed ?? lazy ?? []);
}

interface RoomPlace {
  daemon: Daemon;
  roomIndex: number;
}

type Place = 'shared' | 'outside' | RoomPlace | { daemon: Daemon; roomIndex: 'composition' };

function placeOf(path: string): Place {
  if (path.startsWith('shared/')) return 'shared';
  const daemon = DAEMONS.find(({ folder }) => path.startsWith(`${folder}/`));
  if (daemon === undefined) return 'outside';
  const inside = path.slice(daemon.folder.length + 1);
  if (daemon.composition.includes(inside)) return { daemon, roomIndex: 'composition' };
  const roomIndex = daemon.rooms.findIndex((room) => inside.startsWith(`${room.path}/`));
  return roomIndex === -1 ? 'outside' : { daemon, roomIndex };
}

/** The reason why `from` may not import `to`, or undefined when it may. */
function whyNot(from: string, to: string): string | undefined {
  // It says which version all of this is.
  if (to === 'package.json') return undefined;
  const [here, there] = [placeOf(from), placeOf(to)];
  if (there === 'shared') return undefined;
  if (here === 'shared') return 'shared is the ground both processes stand on and knows neither';
  if (there === 'outside') return 'it is no room of the house';
  if (here === 'outside') return undefined;
  if (here.daemon !== there.daemon) return 'agent and control-plane meet only in shared';
  if (here.roomIndex === 'composition') return undefined;
  if (there.roomIndex === 'composition')
    return 'a room does not know the house; what it needs is handed to its openX(deps)';
  if (isApart(here, there)) return 'the plan keeps these two rooms apart';
  if (there.roomIndex <= here.roomIndex) return undefined;
  return 'a room imports only rooms above it in the plan; let house.ts hand the function in';
}

function isApart(here: RoomPlace, there: RoomPlace): boolean {
  const { rooms } = here.daemon;
  const path = rooms[there.roomIndex]?.path;
  return path !== undefined && rooms[here.roomIndex]?.apart?.includes(path) === true;
}

/** Whether a door of the plan (a folder or a file) lets this file in. */
export function opens(door: string, path: string): boolean {
  return door.endsWith('/') ? path.startsWith(door) : path === door;
}
