// `npm run demo`: the whole service on this machine, from an empty database to the final bill, then yours to play with.
import { parseArgs } from 'node:util';
import { installMissing } from '../kit/setup.ts';
import { openStack, type Stack } from '../kit/stack.ts';
import { playLines } from './play.ts';
import { openShow, StepFailed, type Show } from './show.ts';
import { walk } from './walk.ts';

const { values } = parseArgs({
  options: {
    /** Ends after the walk instead of staying up: exit code 0 when every step held, 1 otherwise. */
    once: { type: 'boolean', default: false },
  },
});

const SIMULATED_GPUS = { FAKE_GPU_COUNT: '8', FAKE_GPU_NAME: 'NVIDIA H100 80GB HBM3' };
const EXIT_INTERRUPTED = 130;

process.exitCode = await demo(openShow(process.stdout));

async function demo(show: Show): Promise<number> {
  const interrupted = onSignal((signal) => show.say(`\n${signal}: stopping everything`));
  let opening: Promise<Stack> | undefined;
  const tour = async (): Promise<void> => {
    await prepare(show);
    const stack = await show.step('Service', async () => {
      opening = openStack(SIMULATED_GPUS);
      const value = await opening;
      const { Version: version } = (await value.engine.docker.version()) as { Version: string };
      const result = `control plane at ${value.controlPlane.baseUrl} on SQLite, Docker Engine ${version}, image registry`;
      return { value, result };
    });
    const rented = await walk(show, stack, { env: SIMULATED_GPUS });
    if (values.once) return;
    for (const line of playLines(stack, rented)) show.say(line);
    await interrupted;
  };
  try {
    return await Promise.race([tour().then(() => 0), interrupted]);
  } catch (error) {
    explain(show, error, await opening?.catch(() => undefined));
    return 1;
  } finally {
    const stack = await opening?.catch(() => undefined);
    const left = (await stack?.stop()) ?? [];
    for (const line of left) show.say(`had to be ended by force: ${line}`);
    show.say('Everything is stopped, and nothing is left behind.');
  }
}

async function prepare(show: Show): Promise<void> {
  await show.step('Programs', async (note) => {
    const missing = installMissing(['dockerd', 'docker-registry', 'iptables', 'busybox', 'ssh'], note);
    if (missing.length > 0) throw new Error(`${missing.join(', ')} not found, and only root on Debian can install it`);
    return { value: undefined, result: 'Docker Engine, image registry and OpenSSH are there' };
  });
}

/** Resolves with the exit code at the first signal; later ones do not cut the cleaning up short. */
function onSignal(say: (signal: NodeJS.Signals) => void): Promise<number> {
  return new Promise((resolve) => {
    const stop = (signal: NodeJS.Signals): void => {
      say(signal);
      resolve(EXIT_INTERRUPTED);
    };
    process.on('SIGINT', stop).on('SIGTERM', stop).on('SIGHUP', stop);
  });
}

function explain(show: Show, error: unknown, stack: Stack | undefined): void {
  if (!(error instanceof StepFailed)) throw error;
  show.say(`\nThe step "${error.step}" failed: ${error.message}`);
  if (stack === undefined) return;
  show.say(`\n--- control plane, last lines of its log\n${stack.controlPlane.daemon.logTail()}`);
  for (const agent of stack.agents) show.say(`\n--- agent, last lines of its log\n${agent.daemon.logTail()}`);
}
