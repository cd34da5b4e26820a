// Limits for each holder process, because a client or tenant can make its holder use CPU and memory. If memory runs out, the kernel
// kills this holder before anything of another tenant. A holder never regains the rights that it gives up.
import { createHash } from 'node:crypto';
import { mkdir, readdir, readFile, rmdir, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { codeOf, messageOf } from '../../shared/errors.ts';
import { GPUS_PER_MACHINE_MAX } from '../../shared/limits.ts';
import { run } from './run.ts';
import { isMissing } from './state.ts';

export interface Confinement {
  /** What this host cannot enforce, in a sentence for the supplier; empty if it enforces everything. */
  lack: string;
  /** The command line that runs `program` within its own limits, which are made for `name`. */
  around(name: string, program: readonly string[]): Promise<[string, ...string[]]>;
}

const CGROUPS = '/sys/fs/cgroup';
/** The parent cgroup of all holders. It is not below the agent's, because holders go on while the agent is replaced. */
const GROUP = 'svc-holders';
const CONTROLLERS = ['cpu', 'memory', 'pids'];
/** The memory is for the heap (HOLDER_FLAGS), buffers (SSH_BUFFERED_BYTES_MAX) and the program itself; no swap. */
const BOUNDS: Readonly<Record<string, string>> = {
  'memory.max': String(512 * 1024 ** 2),
  'memory.oom.group': '1',
  // One and a half processors: one for encryption, the rest for its helper threads.
  'cpu.max': '150000 100000',
  'pids.max': '64',
};
/** A kernel without swap accounting does not have this file. */
const NO_SWAP = 'memory.swap.max';
/** Higher than the agent's and every container's score, so that the kernel kills a holder first. */
const OOM_SCORE = 500;
const PROBE_MS_MAX = 10_000;
/** Holders that start at the same moment, at most. The cgroup of a holder that has not joined yet has no process. */
const RECENT_MAX = GPUS_PER_MACHINE_MAX;
/** A command that root may run, but that fails if the unit svc-agent.service has set its filter of system calls. */
const FILTER_PROBE = ['chroot', '/', 'true'] as const;

/**
 * Joins the group before the program begins, so that all of the program is in it. A crash writes no core file, because that would hold the host
 * key and could fill the host's disk. Arguments: the group or an empty text, then the program.
 */
const START = `
[ -z "$1" ] || echo $$ > "$1/cgroup.procs" || exit 1
echo ${OOM_SCORE} > /proc/self/oom_score_adj
ulimit -c 0
shift
exec "$@"
`;

/** A range of user ids that no other program uses. It lies above the ids that systemd gives to containers, and below those of images. */
const USER_FIRST = 0x7000_0000;
const USERS = 0x0fe0_0000;

interface Kernel {
  cgroups: string;
  /** Succeeds if no filter of system calls is in force. */
  filterProbe: readonly [string, ...string[]];
}

/** Finds out which limits this host can enforce. `kernel` is for tests. */
export async function openConfinement(kernel: Partial<Kernel> = {}): Promise<Confinement> {
  const { cgroups = CGROUPS, filterProbe = FILTER_PROBE } = kernel;
  const groups = join(cgroups, GROUP);
  const noGroups = await prepareGroups(cgroups, groups).then(() => '', messageOf);
  const privileges = ['setpriv', '--no-new-privs', '--'] as const;
  const noPrivileges = await run([...privileges, 'true'], { timeoutMs: PROBE_MS_MAX }).then(
    ({ code }) => (code === 0 ? '' : 'setpriv --no-new-privs fails'),
    () => 'the program setpriv is missing (package util-linux)',
  );
  // systemd sets the filter for the agent, and holders inherit it. Neither this process nor Node can set a filter.
  const noFilter = await run(filterProbe, { timeoutMs: PROBE_MS_MAX }).then(
    ({ code }) => (code === 0 ? 'no filter of system calls: the agent does not run as the unit svc-agent.service' : ''),
    (error: unknown) => `it is not known whether a filter of system calls is in force (${messageOf(error)})`,
  );
  let recent: string[] = [];
  return {
    lack: [noGroups, noPrivileges, noFilter].filter((each) => each !== '').join('; '),
    around: async (name, program) => {
      recent = [...recent, name].slice(-RECENT_MAX);
      const group = noGroups === '' ? await makeGroup(groups, name, recent) : '';
      const prefix = noPrivileges === '' ? privileges : [];
      return ['/bin/sh', '-c', START, 'start', group, ...prefix, ...program];
    },
  };
}

/** The user that a holder of this name becomes. */
export function userOf(name: string): number {
  return USER_FIRST + (createHash('sha256').update(name).digest().readUInt32BE() % USERS);
}

/** Changes this process from root to the user, irrevocably. Does nothing if it is not root. Throws if it is still root afterwards. */
export function becomeUser(uid: number): void {
  if (process.getuid?.() !== 0) return;
  process.setgroups?.([]);
  process.setgid?.(uid);
  process.setuid?.(uid);
  if (process.getuid() !== uid) throw new Error('the holder could not leave the user root');
}

async function prepareGroups(cgroups: string, groups: string): Promise<void> {
  const needed = CONTROLLERS.map((name) => `+${name}`).join(' ');
  const there = await readFile(join(cgroups, 'cgroup.controllers'), 'utf8').catch(() => '');
  const missing = CONTROLLERS.filter((name) => !there.trim().split(' ').includes(name));
  if (missing.length > 0) {
    throw new Error(
      `this host has no cgroups of version 2 with ${missing.join(', ')}: memory and CPU of holders have no bound`,
    );
  }
  try {
    await writeFile(join(cgroups, 'cgroup.subtree_control'), needed);
    await mkdir(groups, { recursive: true });
    await writeFile(join(groups, 'cgroup.subtree_control'), needed);
  } catch (error) {
    throw new Error(`${groups} cannot be made (${messageOf(error)}): memory and CPU of holders have no bound`, {
      cause: error,
    });
  }
}

/**
 * Makes the cgroup of a holder, and returns its path. Before that, it removes the cgroups whose holder has ended: the kernel keeps those that have a
 * process. Those of `recent` stay, because their holders may not have joined yet.
 */
async function makeGroup(groups: string, name: string, recent: readonly string[]): Promise<string> {
  const others = await readdir(groups, { withFileTypes: true });
  const over = others.filter((one) => one.isDirectory() && !recent.includes(one.name));
  await Promise.all(over.map((one) => rmdir(join(groups, one.name)).catch(() => {})));
  const group = join(groups, name);
  await mkdir(group, { recursive: true });
  for (const [file, value] of Object.entries(BOUNDS)) await writeFile(join(group, file), value);
  await writeFile(join(group, NO_SWAP), '0').catch((error: unknown) => {
    if (!isMissing(error) && !isForbidden(error)) throw error;
  });
  return group;
}

/** A cgroup without this file refuses the write with EACCES or EPERM, because nobody can create files there. */
function isForbidden(error: unknown): boolean {
  return ['EACCES', 'EPERM'].includes(codeOf(error) ?? '');
}
