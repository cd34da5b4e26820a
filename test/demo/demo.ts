// `npm run demo`: the whole service on this machine, from an empty database to the final bill, then yours to play with.
import { parseArgs } from 'node:util';
import { buildAgentPrograms } from '../../installer/agent-programs.ts';
import { buildConsole } from '../../installer/console.ts';
import { installMissing } from '../kit/setup.ts';
import { openStack, type Stack } from '../kit/stack.ts';
import { runInContainer } from './elsewhere.ts';
import { findGpus } from './gpus.ts';
import { openDemoModel } from './model.ts';
import { launchPage, playLines } from './play.ts';
import { openShow, StepFailed } from './show.ts';
import { walk } from './walk.ts';

const { values } = parseArgs({
  options: {
    /** Ends after the walk instead of staying up: exit code 0 when every step held, 1 otherwise. */
    once: { type: 'boolean', default: false },
  },
});

const EXIT_INTERRUPTED = 130;
const SETTLE_MS_MAX = 5_000;

const show = openShow(process.stdout);
const code = await canHoldDemo().then(
  (canHold) => (canHold ? demo() : demoElsewhere()),
  (error: unknown) => {
    explain(error, undefined);
    return 1;
  },
);
// An interrupted step may still wait for something. That must not keep the process alive.
process.exit(code);

/** The daemons and the engine are Linux programs that want root; Debian's packages bring what is missing. */
async function canHoldDemo(): Promise<boolean> {
  if (process.platform !== 'linux' || process.getuid?.() !== 0) return false;
  return show.step('Programs', async (note) => {
    await Promise.all([buildConsole(), buildAgentPrograms()]);
    const missing = installMissing(['dockerd', 'docker-registry', 'iptables', 'nft', 'busybox', 'ssh'], note);
    const found = 'Docker Engine, image registry and OpenSSH are there';
    return { value: missing.length === 0, result: missing.length === 0 ? found : `${missing.join(', ')} not found` };
  });
}

async function demo(): Promise<number> {
  const gpus = findGpus(process.env['PATH'] ?? '');
  const interrupted = onSignal((signal) => {
    show.endSteps();
    show.say(`${signal}: stopping everything`);
  });
  const model = await openDemoModel();
  let opening: Promise<Stack> | undefined;
  let isWalked = false;
  // Ctrl-C is the ordinary end of playing, but not of the walk.
  const cutShort = interrupted.then(() => (isWalked ? 0 : EXIT_INTERRUPTED));
  const tour = async (): Promise<number> => {
    const stack = await show.step('Service', async () => {
      // The walk ends with a payout, and it cannot wait two days for disputes.
      const settings = (_host: string, dir: string): object => ({
        models_file: model.writeFile(dir),
        earnings_delay_hours: 0,
      });
      opening = openStack({ gpus, settings, hostname: 'localhost' });
      const value = await opening;
      const { Version: version } = (await value.engine.docker.version()) as { Version: string };
      const result = `control plane at ${value.controlPlane.baseUrl} on SQLite, Docker Engine ${version}, image registry, ${gpus.description}`;
      return { value, result };
    });
    const rented = await walk(show, stack, gpus, model);
    isWalked = true;
    if (values.once) return 0;
    await show.step('Instance to look at', async () => {
      const { id } = await launchPage(rented);
      return { value: id, result: `${id} runs a small web page; the console shows it` };
    });
    for (const line of playLines(stack, rented, await consoleLink(stack, rented.customer.orgId))) show.say(line);
    return cutShort;
  };
  const opened = async (): Promise<Stack | undefined> => opening?.catch(() => undefined);
  const touring = tour();
  const result = await Promise.race([touring, cutShort]).catch(async (error: unknown) => {
    explain(error, await opened());
    return 1;
  });
  const left = (await (await opened())?.stop()) ?? [];
  await model.close();
  if (result === EXIT_INTERRUPTED) {
    // A step that was cut short may hold a temporary folder; its own programs are among those that were ended.
    await Promise.race([touring.catch(() => undefined), new Promise((resolve) => setTimeout(resolve, SETTLE_MS_MAX))]);
  } else if (left.length > 0) {
    for (const line of left) show.say(`had to be ended by force: ${line}`);
    return 1;
  }
  show.say('Everything is stopped, and nothing is left behind.');
  return result;
}

/** A one-time link for an owner of the customer's organisation. It is made last, because somebody may look at it right away. */
async function consoleLink({ controlPlane }: Stack, orgId: string): Promise<string> {
  const person = ['--email', 'ada@example.com', '--name', 'Ada', '--org', orgId, '--role', 'owner'];
  const { url } = (await controlPlane.operator('admin', 'user', 'add', ...person)) as { url: string };
  return url;
}

async function demoElsewhere(): Promise<number> {
  show.say('This machine cannot hold the demo itself (that takes Linux, root, and Debian or its programs):');
  show.say('it runs in a container of the Docker Engine here.');
  try {
    return await runInContainer(process.argv.slice(2));
  } catch (error) {
    show.say(`There is no docker command to do that with: ${error instanceof Error ? error.message : String(error)}`);
    return 1;
  }
}

/** Resolves at the first signal. Later signals do not interrupt the cleanup. */
function onSignal(say: (signal: NodeJS.Signals) => void): Promise<void> {
  return new Promise((resolve) => {
    const stop = (signal: NodeJS.Signals): void => {
      say(signal);
      resolve();
    };
    process.on('SIGINT', stop).on('SIGTERM', stop).on('SIGHUP', stop);
  });
}

function explain(error: unknown, stack: Stack | undefined): void {
  if (!(error instanceof StepFailed)) throw error;
  show.say(`\nThe step "${error.step}" failed: ${error.message}`);
  if (stack === undefined) return;
  show.say(`\n--- control plane, last lines of its log\n${stack.controlPlane.daemon.logTail()}`);
  for (const agent of stack.agents) show.say(`\n--- agent, last lines of its log\n${agent.daemon.logTail()}`);
}
