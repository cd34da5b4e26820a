// The time from the accepted request to a running instance whose endpoint answers, on a warm image, against `docker run -d` on the same engine.
import { Instance } from '../../shared/api/instance.ts';
import { terminate } from '../kit/api-client.ts';
import { runProgram } from '../kit/processes.ts';
import { openRentalStack, type RentalStack } from '../kit/rental-stack.ts';
import { installMissing } from '../kit/setup.ts';
import { median, report, shuffled, timeMs } from './measure.ts';

const OURS = 'ours';
const ROUNDS = 9;
/** Extra time that the service may take, for the guest, the endpoint and a real login through the public port. */
const ON_TOP_MS_MAX = 300;

/** A rented container has a GPU, so `docker run` is measured with one too: what the GPU's hook takes is not ours. */
const PEERS = { 'docker run -d': [], 'docker run -d --gpus 1': ['--gpus', '1'] };

export async function benchLaunch(): Promise<void> {
  const missing = installMissing(['dockerd', 'docker-registry', 'iptables', 'nft', 'busybox', 'ssh'], console.log);
  if (missing.length > 0) return console.log(`launch: not measured, ${missing.join(', ')} is missing here`);
  const stack = await openRentalStack();
  const ways: [string, () => Promise<number>][] = [
    [OURS, () => rentMs(stack)],
    ...Object.entries(PEERS).map(([name, options]): [string, () => Promise<number>] => [
      name,
      () => dockerRunMs(stack, options),
    ]),
  ];
  const figures = new Map<string, number[]>();
  try {
    for (const [, launchMs] of ways) await launchMs();
    for (let round = 0; round < ROUNDS; round += 1) {
      for (const [name, launchMs] of shuffled(ways)) {
        figures.set(name, [...(figures.get(name) ?? []), await launchMs()]);
      }
    }
  } finally {
    for (const fault of await stack.end()) console.error(`launch: ${fault}`);
  }
  const ours = median(figures.get(OURS) ?? []);
  for (const peerName of Object.keys(PEERS)) {
    const peer = median(figures.get(peerName) ?? []);
    const target = { rule: 'at most', ratio: (peer + ON_TOP_MS_MAX) / peer } as const;
    report({ what: 'launch of a warm image, accepted to running', ours, peer, peerName, unit: 'ms', target });
    console.log(`  ${(ours - peer).toFixed(0)} ms on top, ${ON_TOP_MS_MAX} ms allowed`);
  }
}

/** The time that the service itself books. */
async function rentMs({ rent, customer }: RentalStack): Promise<number> {
  const { id } = await rent();
  const { created_at: created, ready_at: ready } = await customer.api.get(`/instances/${id}`, Instance);
  await terminate(customer.api, id);
  if (ready === null) throw new Error(`instance ${id} runs and was never ready`);
  return Date.parse(ready) - Date.parse(created);
}

async function dockerRunMs({ engine, image }: RentalStack, options: readonly string[]): Promise<number> {
  const docker = (...args: string[]): Promise<string> =>
    runProgram({ command: 'docker', args, env: { DOCKER_HOST: `unix://${engine.socketPath}` } });
  let id = '';
  const ms = await timeMs(async () => {
    id = (await docker('run', '-d', ...options, image.pinnedRef)).trim();
  });
  await docker('rm', '-f', id);
  return ms;
}
