// Finds and ends what a test run left behind. A run marks its children with an environment variable and a folder.
import { readdirSync, readFileSync, rmSync } from 'node:fs';
import { spawnSync } from 'node:child_process';
import { eventually } from './processes.ts';

/** Set in the environment of every program that a test run starts. */
export const RUN_MARKER = 'GPU_RENTAL_TEST_RUN';

export interface Run {
  /** Value of `RUN_MARKER`. */
  id: string;
  /** The folder in which everything of the run is written (TMPDIR of its programs). */
  dir: string;
}

export interface Leftover {
  pid: number;
  command: string;
}

/** Living processes that carry the run's marker or name its folder, and their descendants. Empty if there is no /proc. */
export function leftoverProcesses(run: Run): Leftover[] {
  const all = processes();
  const found = new Set(all.filter((process) => isMarked(process.pid, process.command, run)).map(({ pid }) => pid));
  for (let size = -1; size !== found.size;) {
    size = found.size;
    for (const { pid, parent } of all) if (found.has(parent)) found.add(pid);
  }
  return all.filter(({ pid }) => found.has(pid) && pid !== process.pid).map(({ pid, command }) => ({ pid, command }));
}

/** Mount points below a folder, innermost first. */
export function mountsBelow(dir: string): string[] {
  return readOrEmpty('/proc/self/mounts')
    .split('\n')
    .map((line) => line.split(' ')[1] ?? '')
    .filter((point) => point.startsWith(`${dir}/`))
    .sort((a, b) => b.length - a.length);
}

/** TCP ports in state LISTEN on this machine, for a before-and-after comparison. */
export function listeningPorts(): Set<number> {
  const LISTEN = '0A';
  const rows = ['tcp', 'tcp6'].flatMap((table) => readOrEmpty(`/proc/net/${table}`).split('\n').slice(1));
  return new Set(
    rows
      .map((row) => row.trim().split(/\s+/))
      .filter((columns) => columns[3] === LISTEN)
      .map((columns) => Number.parseInt(columns[1]?.split(':')[1] ?? '', 16)),
  );
}

/** Ends what is left of a run and removes its folder. Returns one line for each thing that should not have been there. */
export async function cleanUp(run: Run): Promise<string[]> {
  const lines: string[] = [];
  for (const { pid, command } of leftoverProcesses(run)) {
    lines.push(`process ${pid}: ${command}`);
    end(pid, 'SIGKILL');
  }
  await eventually('end of the left processes', 10_000, async () => leftoverProcesses(run).length === 0 || undefined);
  for (const point of mountsBelow(run.dir)) {
    lines.push(`mount ${point}`);
    spawnSync('umount', ['--lazy', point]);
  }
  rmSync(run.dir, { recursive: true, force: true });
  return lines;
}

interface ProcessRow {
  pid: number;
  parent: number;
  command: string;
}

function processes(): ProcessRow[] {
  let names: string[];
  try {
    names = readdirSync('/proc').filter((name) => /^\d+$/.test(name));
  } catch {
    return [];
  }
  return names.flatMap((name) => {
    const status = readOrEmpty(`/proc/${name}/status`);
    if (status === '' || /^State:\s+Z/m.test(status)) return [];
    const parent = Number(/^PPid:\s+(\d+)/m.exec(status)?.[1] ?? 0);
    const command = readOrEmpty(`/proc/${name}/cmdline`).replaceAll('\0', ' ').trim();
    return [{ pid: Number(name), parent, command }];
  });
}

function isMarked(pid: number, command: string, run: Run): boolean {
  return (
    command.includes(run.dir) || readOrEmpty(`/proc/${pid}/environ`).split('\0').includes(`${RUN_MARKER}=${run.id}`)
  );
}

/** Processes come and go while we read, and some belong to other users. */
function readOrEmpty(path: string): string {
  try {
    return readFileSync(path, 'utf8');
  } catch {
    return '';
  }
}

function end(pid: number, signal: NodeJS.Signals): void {
  try {
    process.kill(pid, signal);
  } catch {
    // It ended by itself.
  }
}
