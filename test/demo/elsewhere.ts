// The demo on a machine that cannot hold it itself (a Mac, no root, no Debian): the same demo in a Linux container of the engine there.
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { resolve } from 'node:path';

/** Names the container to the demo inside it, so that it can say how to get in. */
export const CONTAINER_VARIABLE = 'DEMO_CONTAINER';

const CHECKOUT = resolve(import.meta.dirname, '../..');
const IMAGE = 'node:24-bookworm';
/** The folder of the container's own copy: node_modules of another system would not run there. */
export const COPY = '/demo';

/** Resolves with the exit code of the demo in there. Rejects if there is no `docker` command. */
export async function runInContainer(demoArguments: readonly string[], docker = 'docker'): Promise<number> {
  const child = spawn(docker, containerArguments(demoArguments), { stdio: 'inherit' });
  // Ctrl-C is for the demo in the container: it cleans up and ends, and so does this.
  const wait = (): void => undefined;
  process.on('SIGINT', wait).on('SIGTERM', wait);
  try {
    const [code] = (await once(child, 'close')) as [number | null];
    return code ?? 1;
  } finally {
    process.off('SIGINT', wait).off('SIGTERM', wait);
  }
}

function containerArguments(demoArguments: readonly string[]): string[] {
  const name = `gpu-rental-demo-${process.pid}`;
  const terminal = process.stdin.isTTY && process.stdout.isTTY ? ['--interactive', '--tty'] : [];
  // An engine inside a container needs the privileges of one outside, and a folder that is no overlay for its layers.
  const engine = ['--privileged', '--init', '--volume', '/tmp'];
  const sources = ['--volume', `${CHECKOUT}:/checkout:ro`, '--env', `${CONTAINER_VARIABLE}=${name}`];
  const options = ['--rm', '--name', name, ...terminal, ...engine, ...sources];
  return ['run', ...options, IMAGE, 'sh', '-ec', SCRIPT, 'demo', ...demoArguments];
}

/** On cgroup v2 a container may delegate controllers only once no process is left in its root group. */
const SCRIPT = `
if [ -e /sys/fs/cgroup/cgroup.controllers ]; then
  mkdir -p /sys/fs/cgroup/init
  xargs -rn1 < /sys/fs/cgroup/cgroup.procs > /sys/fs/cgroup/init/cgroup.procs || true
  sed -e 's/ / +/g' -e 's/^/+/' < /sys/fs/cgroup/cgroup.controllers > /sys/fs/cgroup/cgroup.subtree_control
fi
mkdir ${COPY}
tar -C /checkout --exclude=./node_modules --exclude=./.git -cf - . | tar -C ${COPY} -xf -
cd ${COPY}
echo 'Installing the project in a container of its own'
npm ci --no-audit --no-fund --silent
exec npm run --silent demo -- "$@"
`;
