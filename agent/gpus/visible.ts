// Checks from inside a container that it sees exactly its GPUs. The guest runs this before any code of the tenant.
import { closeSync, constants, openSync, readdirSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { codeOf, messageOf } from '../../shared/errors.ts';

/** The guest's exit code if the container does not see exactly its GPUs. No shell and no signal uses this code. */
export const GPUS_DIFFER_CODE = 113;

/**
 * The reason why the container does not see exactly `expected` (UUIDs); undefined if it does. A card counts if its device exists and
 * can be opened. The driver's files tell which card a device is. If they are hidden, only the number of cards is compared. `root` is
 * for tests.
 */
export function gpusDiffer(expected: readonly string[], root = '/'): string | undefined {
  const minors = namesIn(join(root, 'dev')).flatMap((name) => /^nvidia(\d+)$/.exec(name)?.[1] ?? []);
  const uuidOf = readUuids(join(root, 'proc/driver/nvidia/gpus'));
  const seen = minors.map((minor) => uuidOf.get(minor) ?? `/dev/nvidia${minor}`);
  const mismatch = `it was given ${listOf(expected)} and sees ${listOf(seen)}`;
  if (minors.length !== expected.length) return mismatch;
  if (uuidOf.size > 0 && expected.some((uuid) => !seen.includes(uuid))) return mismatch;
  for (const minor of minors) {
    const fault = faultOfOpening(join(root, `dev/nvidia${minor}`));
    if (fault !== undefined) return `${uuidOf.get(minor) ?? `/dev/nvidia${minor}`} cannot be opened: ${fault}`;
  }
  return undefined;
}

/** UUIDs by device number, from `/proc/driver/nvidia/gpus/<bus id>/information`. */
function readUuids(folder: string): Map<string, string> {
  const uuids = new Map<string, string>();
  for (const name of namesIn(folder)) {
    const text = textOf(join(folder, name, 'information'));
    const uuid = /^GPU UUID:\s*(\S+)/m.exec(text)?.[1];
    const minor = /^Device Minor:\s*(\d+)/m.exec(text)?.[1];
    if (uuid !== undefined && minor !== undefined) uuids.set(minor, uuid);
  }
  return uuids;
}

function faultOfOpening(device: string): string | undefined {
  try {
    closeSync(openSync(device, constants.O_RDWR));
    return undefined;
  } catch (error) {
    return codeOf(error) ?? messageOf(error);
  }
}

function namesIn(folder: string): string[] {
  try {
    return readdirSync(folder);
  } catch {
    return [];
  }
}

function textOf(file: string): string {
  try {
    return readFileSync(file, 'utf8');
  } catch {
    return '';
  }
}

function listOf(names: readonly string[]): string {
  return names.length === 0 ? 'no GPU' : names.join(', ');
}
