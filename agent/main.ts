// The agent's command line: `enroll` once, `run` for ever.
import { Command } from 'commander';
import { messageOf } from '../shared/errors.ts';
import { createLog } from '../shared/log.ts';
import { readCa, readConfig } from './config.ts';

const CONFIG_OPTION = ['--config <file>', 'agent.yaml; without it every setting has its default'] as const;

async function enrollHost(options: { url: string; token: string; config?: string }): Promise<void> {
  const config = await readConfig(options.config);
  const { takeInventory } = await import('./stock.ts');
  const { enroll } = await import('./link/enroll.ts');
  const { openDocker } = await import('./runtime/docker.ts');
  const { readHostFacts } = await import('./host/facts.ts');
  const { readGpus } = await import('./gpus/nvidia-smi.ts');
  const engine = openDocker({ socketPath: config.docker_socket, machineId: '' });
  // A supplier who enrols is there to see that nvidia-smi fails, and to mend it.
  const gpus = { gpus: await readGpus(config.nvidia_smi, []), gpu_error: '' };
  const facts = await readHostFacts(config.state_dir);
  const machineId = await enroll({
    stateDir: config.state_dir,
    url: options.url,
    token: options.token,
    ca: await readCa(config),
    inventory: await takeInventory(gpus, { engine, facts, diskEnforced: false }),
  });
  process.stdout.write(`enrolled as machine ${machineId}\n`);
}

async function runSupervisor(options: { config?: string }): Promise<void> {
  const config = await readConfig(options.config);
  const log = createLog('agent', config.log_level);
  const { openHouse } = await import('./house.ts');
  const { openStatusSocket } = await import('./host/status-socket.ts');
  const house = await openHouse(config, log);
  const statusSocket = await openStatusSocket(config.state_dir, house.status);
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

const program = new Command('svc-agent').description("The node agent: offers this machine's GPUs to a control plane.");
program
  .command('enroll')
  .description('make this host a machine of the fleet; repeating it is safe')
  .requiredOption('--url <url>', 'the control plane, e.g. https://api.example.com')
  .requiredOption('--token <token>', 'the one-time enrolment token')
  .option(...CONFIG_OPTION)
  .action(enrollHost);
program
  .command('run')
  .description('run the agent')
  .option(...CONFIG_OPTION)
  .action(runSupervisor);
program.parseAsync().catch((error: unknown) => {
  process.stderr.write(`svc-agent: ${messageOf(error)}\n`);
  process.exit(1);
});
