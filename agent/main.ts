// The agent's command line: `enroll` once, `run` for ever.
import { Command } from 'commander';
import { messageOf } from '../shared/errors.ts';
import { createLog } from '../shared/log.ts';
import { readCa, readConfig } from './config.ts';
import type { AgentHouse } from './house.ts';

const CONFIG_OPTION = ['--config <file>', 'agent.yaml; without it every setting has its default'] as const;

async function enrollHost(options: { url: string; token: string; allowHttp?: true; config?: string }): Promise<void> {
  const config = await readConfig(options.config);
  const { assertRentable, findFence, takeInventory } = await import('./stock.ts');
  const { enroll } = await import('./link/enroll.ts');
  const { openDocker } = await import('./runtime/docker.ts');
  const { readHostFacts } = await import('./host/facts.ts');
  const { readGpus } = await import('./gpus/nvidia-smi.ts');
  const engine = openDocker({ socketPath: config.docker_socket, machineId: '' });
  // A supplier who enrols is there to see that nvidia-smi fails, and to mend it.
  const gpus = { gpus: await readGpus(config.nvidia_smi, []), gpu_error: '', gpu_faults: [] };
  const facts = await readHostFacts(config.state_dir);
  const fence = await findFence(config);
  const inventory = await takeInventory(gpus, { engine, facts, diskEnforced: false, fence });
  assertRentable(inventory, config);
  const { state_dir: stateDir } = config;
  const { url, token, allowHttp = false } = options;
  const machineId = await enroll({ stateDir, url, token, allowHttp, ca: await readCa(config), inventory });
  const models = [...new Set(inventory.gpus.map((gpu) => gpu.name))].join(', ');
  process.stdout.write(
    `enrolled as machine ${machineId} with ${inventory.gpus.length} GPUs (${models}); next: svc-agent run\n`,
  );
}

async function runSupervisor(options: { config?: string }): Promise<void> {
  const config = await readConfig(options.config);
  const log = createLog('agent', config.log_level);
  const { openHouse, readEnrolment } = await import('./house.ts');
  const { openStatusSocket } = await import('./host/status-socket.ts');
  const enrolment = await readEnrolment(config.state_dir);
  let started: AgentHouse | undefined;
  // First, because it is the lock: of two supervisors neither would know what the other does to the containers.
  const statusSocket = await openStatusSocket(config.state_dir, () => started?.status());
  const house = await openHouse(config, enrolment, log);
  started = house;
  let stopping = false;
  const stop = (signal: NodeJS.Signals): void => {
    // The second signal does not wait: containers and holders go on either way.
    if (stopping) process.exit(1);
    stopping = true;
    log.info({ signal }, 'the agent leaves; containers and their doors stay');
    void Promise.all([house.stop(), statusSocket.close()]).then(() => process.exit(0));
  };
  process.on('SIGTERM', stop);
  process.on('SIGINT', stop);
}

async function showStatus(options: { config?: string }): Promise<void> {
  const config = await readConfig(options.config);
  const { askStatus, statusWords } = await import('./host/status-words.ts');
  const { lines, isWell } = statusWords(await askStatus(config.state_dir));
  process.stdout.write(`${lines.join('\n')}\n`);
  process.exitCode = isWell ? 0 : 1;
}

const program = new Command('svc-agent').description("The node agent: offers this machine's GPUs to a control plane.");
program
  .command('enroll')
  .description('make this host a machine of the fleet; repeating it is safe')
  .requiredOption('--url <url>', 'the control plane, e.g. https://api.example.com')
  .requiredOption('--token <token>', 'the one-time enrolment token')
  .option('--allow-http', 'speak plain http to another machine: only on a network that nobody else reads')
  .option(...CONFIG_OPTION)
  .action(enrollHost);
program
  .command('run')
  .description('run the agent')
  .option(...CONFIG_OPTION)
  .action(runSupervisor);
program
  .command('status')
  .description('say how the running agent is; exit code 1 where something keeps this host from being rented out')
  .option(...CONFIG_OPTION)
  .action(showStatus);
program.parseAsync().catch((error: unknown) => {
  process.stderr.write(`svc-agent: ${messageOf(error)}\n`);
  process.exit(1);
});
