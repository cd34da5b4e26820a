// A second control plane that serves beside one on PostgreSQL.
import { readFileSync, writeFileSync } from 'node:fs';
import { dirname, join, resolve } from 'node:path';
import type { ControlPlane } from './control-plane.ts';
import { freePort } from './ports.ts';
import { eventually, type Program, startProgram } from './processes.ts';

export interface SecondControlPlane {
  program: Program;
  /** `http://127.0.0.1:<port>` */
  url: string;
  /** The address of its SSH ports and applications, which have the port numbers of the first one. */
  host: string;
}

interface Config {
  ssh: object;
  apps: { listen: object };
}

const HOST = '127.0.0.2';

const LAUNCHER = resolve(import.meta.dirname, '../../control-plane/svc-control-plane.js');

/**
 * Starts it, once the first one has started again with an address at which the second one reaches it. Both get the settings in `more`. Resolves
 * when the second one passes requests on.
 */
export async function startSecond(
  { daemon, configPath, agentUrl }: Pick<ControlPlane, 'daemon' | 'configPath' | 'agentUrl'>,
  more: object,
): Promise<SecondControlPlane> {
  const config = JSON.parse(readFileSync(configPath, 'utf8')) as Config;
  const folder = dirname(configPath);
  const configure = (path: string, own: object): void =>
    writeFileSync(path, JSON.stringify({ ...config, trust_proxy: ['127.0.0.1'], ...more, ...own }));
  const port = await freePort();
  const [url, secondPath] = [`http://127.0.0.1:${port}`, join(folder, 'second.yaml')];
  configure(secondPath, {
    listen: { host: '127.0.0.1', port },
    peer_url: url,
    admin_socket: join(folder, 's.sock'),
    ssh: { ...config.ssh, host: HOST },
    apps: { ...config.apps, listen: { ...config.apps.listen, host: HOST } },
  });
  configure(configPath, { peer_url: agentUrl });
  await daemon.stop('SIGTERM');
  await daemon.start();
  const program = startProgram({ command: process.execPath, args: [LAUNCHER, 'serve', '--config', secondPath] });
  await program.waitForOutput(/serves beside the primary/, 30_000);
  // Only the primary knows that there is nothing.
  await eventually('the second one passes on', 10_000, async () => {
    const { status } = await fetch(`${url}/v1/nothing`);
    return status === 404 ? true : undefined;
  });
  return { program, url, host: HOST };
}
