// The agent's command line: `enroll` once, `run` for ever; `check`, `status` and `clear` for the host's owner.
import { text } from 'node:stream/consumers';
import { Command } from 'commander';
import { messageOf } from '../shared/errors.ts';
import { createLog } from '../shared/log.ts';
import { printable } from '../shared/terminal.ts';
import { VERSION } from '../shared/version.ts';
import { readCa, readConfig } from './config.ts';
import type { AgentHouse } from './house.ts';

const CONFIG_OPTION = [
  '--config <file>',
  'agent.yaml; without it the installed one. If there is none, every setting has its default',
] as const;

interface EnrollFlags {
  url: string;
  token: string;
  allowHttp?: boolean;
  config?: string;
}

async function enrollHost({ url, token: given, allowHttp = false, config: file }: EnrollFlags): Promise<void> {
  const config = await readConfig(file);
  const { gpusInWords, surveyHost } = await import('./host-commands.ts');
  const { enroll } = await import('./link/enroll.ts');
  const token = given === '-' ? await readToken() : given;
  const inventory = await surveyHost(config);
  const { state_dir: stateDir } = config;
  const machineId = await enroll({ stateDir, url, token, allowHttp, ca: await readCa(config), inventory });
  const enrolled = printable(`enrolled as machine ${machineId} with ${gpusInWords(inventory)}`);
  process.stdout.write(
    `${enrolled}\nNext: systemctl start svc-agent. Without systemd: svc-agent run, with the same --config.\n`,
  );
}

/** Reads the token from the standard input, because other users of the host can read the arguments of every process. */
async function readToken(): Promise<string> {
  const token = (await text(process.stdin)).trim();
  if (token === '') throw new Error('--token - reads the token from the standard input, which is empty');
  return token;
}

async function checkHost(options: { config?: string }): Promise<void> {
  const { gpusInWords, surveyHost } = await import('./host-commands.ts');
  const inventory = await surveyHost(await readConfig(options.config));
  const words = `this host can be rented out: ${gpusInWords(inventory)}, Docker Engine ${inventory.engine_version}`;
  process.stdout.write(`${printable(words)}\n`);
}

async function clear({ config, force = false }: { config?: string; force?: boolean }): Promise<void> {
  const { clearHost } = await import('./host-commands.ts');
  const settings = await readConfig(config);
  const { ended, hasEngine } = await clearHost(settings, { force });
  if (!hasEngine) {
    process.stderr.write(
      `svc-agent: no Docker Engine answers at ${settings.docker_socket}, so containers of ours stay if it has any; to remove them, start it and run this again\n`,
    );
  }
  process.stdout.write(`nothing of ours runs here any more; rentals that were ended: ${ended}\n`);
}

async function runSupervisor(options: { config?: string }): Promise<void> {
  const config = await readConfig(options.config);
  const log = createLog('agent', config.log_level);
  const { openHouse, readEnrolment } = await import('./house.ts');
  const { openStatusSocket } = await import('./host/status-socket.ts');
  const enrolment = await readEnrolment(config.state_dir);
  let started: AgentHouse | undefined;
  // The socket comes first, because it is the lock against a second supervisor, which would change the same containers.
  const statusSocket = await openStatusSocket(config.state_dir, () => started?.status());
  const house = await openHouse(config, enrolment, log);
  started = house;
  let stopping = false;
  const stop = (signal: NodeJS.Signals): void => {
    // A second signal exits at once. Containers and holders go on either way.
    if (stopping) process.exit(1);
    stopping = true;
    log.info({ signal }, 'the agent ends; containers and their holders stay');
    void Promise.all([house.stop(), statusSocket.close()]).then(() => process.exit(0));
  };
  process.on('SIGTERM', stop);
  process.on('SIGINT', stop);
}

async function showStatus(options: { config?: string }): Promise<void> {
  const config = await readConfig(options.config);
  const { askStatus, statusWords } = await import('./host/status-socket.ts');
  const { lines, isWell } = statusWords(await askStatus(config.state_dir));
  // Tenants choose names of images, and registries and the control plane choose the words of refusals.
  process.stdout.write(`${lines.map(printable).join('\n')}\n`);
  process.exitCode = isWell ? 0 : 1;
}

const program = new Command('svc-agent')
  .description("The node agent: offers this machine's GPUs to a control plane.")
  .version(VERSION);
program
  .command('check')
  .description('check whether this host can be rented out, and list everything that it lacks')
  .option(...CONFIG_OPTION)
  .action(checkHost);
program
  .command('enroll')
  .description('make this host a machine of the fleet; repeating it is safe')
  .requiredOption('--url <url>', 'the control plane, e.g. https://api.example.com')
  .requiredOption('--token <token>', 'the one-time enrolment token; - reads it from the standard input')
  .option('--allow-http', 'allow plain http to another machine: only on a network that nobody else reads')
  .option(...CONFIG_OPTION)
  .action(enrollHost);
program
  .command('run')
  .description('run the agent')
  .option(...CONFIG_OPTION)
  .action(runSupervisor);
program
  .command('status')
  .description('show the state of the running agent; exit code 1 if something keeps this host from being rented out')
  .option(...CONFIG_OPTION)
  .action(showStatus);
program
  .command('clear')
  .description('remove the containers, holders and fence of the stopped agent from this host; the enrolment stays')
  .option('--force', 'end the rentals of this host and delete their data, instead of refusing')
  .option(...CONFIG_OPTION)
  .action(clear);
program.parseAsync().catch((error: unknown) => {
  // A configuration with several mistakes has a line for each.
  const lines = messageOf(error).split('\n').map(printable);
  process.stderr.write(`svc-agent: ${lines.join('\n')}\n`);
  process.exit(1);
});
