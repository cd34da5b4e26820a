// Compares the plan of the house with the sources: the README of each room has the lines that the plan and the imports decide, and
// no entry of the plan is unused.
import { posix } from 'node:path';
import { DAEMONS, type Room, DOORS, type Daemon, type Door } from './house-plan.ts';
import type { SourceFile } from './sources.ts';
import { importsOf, opens } from './walls.ts';

/** Every room that exists says in a short README what it is for, what it owns, what it imports and what always holds. */
export function roomReadmes(files: readonly SourceFile[]): string[] {
  return DAEMONS.flatMap(({ folder, rooms }) =>
    rooms
      .filter((room) => files.some(({ path }) => path.startsWith(`${folder}/${room.path}/`)))
      .flatMap((room) => brokenReadme(files, folder, room)),
  );
}

function brokenReadme(files: readonly SourceFile[], folder: string, room: Room): string[] {
  const path = `${folder}/${room.path}`;
  const readme = files.find((file) => file.path === `${path}/README.md`);
  if (readme === undefined) return [`${path} has no README.md (purpose, owns, imports, invariants).`];
  const lines = readme.text.trimEnd().split('\n');
  const wanted = [importsLine(files, folder, room.path), ...(folder === 'agent' ? [] : [ownsLine(room)])];
  return wanted
    .filter((line) => !lines.includes(line))
    .map((line) => `${readme.path} does not have this line: ${line}`);
}

function ownsLine({ tables }: Room): string {
  return `- Owns: ${tables.length === 0 ? 'no table' : named(tables)}.`;
}

/** The rooms that the sources of this room import, in the order of the house. */
function importsLine(files: readonly SourceFile[], folder: string, room: string): string {
  const rooms = (DAEMONS.find((daemon) => daemon.folder === folder)?.rooms ?? []).map(({ path }) => path);
  // A room inside another one stands before it in the plan.
  const roomOf = (file: string): string | undefined => rooms.find((path) => file.startsWith(`${folder}/${path}/`));
  const targets = files
    .filter(({ path }) => roomOf(path) === room)
    .flatMap((file) => importsOf(file).map((target) => posix.join(posix.dirname(file.path), target)));
  const entered = rooms.filter((path) => path !== room && targets.some((to) => roomOf(to) === path));
  return `- Imports: ${entered.length === 0 ? 'only `shared`' : named(entered)}.`;
}

function named(names: readonly string[]): string {
  return names.map((name) => `\`${name}\``).join(', ');
}

interface Plan {
  daemons: readonly Daemon[];
  doors: readonly Door[];
}

/** One sentence for each file, room or door of the plan that the sources do not have. */
export function unusedEntries(files: readonly SourceFile[], plan: Plan = { daemons: DAEMONS, doors: DOORS }): string[] {
  return [
    ...plan.daemons.flatMap((daemon) => unusedOf(daemon, files)),
    ...plan.doors.flatMap((door) => unusedDoors(door, files)),
  ].map((what) => `${what}: take it out of test/kit/house-plan.ts.`);
}

function unusedOf({ folder, composition, rooms }: Daemon, files: readonly SourceFile[]): string[] {
  return [
    ...composition
      .filter((name) => !files.some(({ path }) => path === `${folder}/${name}`))
      .map((name) => `${folder}/${name} does not exist`),
    ...rooms
      .filter((room) => !files.some(({ path }) => path.startsWith(`${folder}/${room.path}/`)))
      .map((room) => `${folder}/${room.path} has no file`),
  ];
}

function unusedDoors({ packages, doors }: Door, files: readonly SourceFile[]): string[] {
  const importers = files.filter((file) =>
    importsOf(file).some((target) => packages.some((name) => target === name || target.startsWith(`${name}/`))),
  );
  return doors
    .filter((door) => !importers.some(({ path }) => opens(door, path)))
    .map((door) => `nothing in ${door} imports ${packages.join(' or ')}`);
}
