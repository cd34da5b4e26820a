// Finds entries of the house's plan that no source uses. Such an entry shows that the plan is outdated.
import { DAEMONS, DOORS, type Daemon, type Door } from './house-plan.ts';
import type { SourceFile } from './sources.ts';
import { importsOf, opens } from './walls.ts';

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
