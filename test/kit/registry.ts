// A private image registry on the loopback interface (Debian's docker-registry), and the images tests need in it.
import { mkdirSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { freePort, httpReady, startProgram } from './processes.ts';
import { requireProgram } from './setup.ts';

export interface Registry {
  /** `127.0.0.1:port`, the first part of an image's name. Speaks plain HTTP. */
  host: string;
  port: number;
  stop(): Promise<void>;
}

export async function startRegistry(): Promise<Registry> {
  const dir = mkdtempSync(join(tmpdir(), 'registry-'));
  const port = await freePort();
  const host = `127.0.0.1:${port}`;
  const config = {
    version: 0.1,
    log: { level: 'warn', accesslog: { disabled: true } },
    storage: { filesystem: { rootdirectory: join(dir, 'data') }, delete: { enabled: true } },
    http: { addr: host },
  };
  mkdirSync(join(dir, 'data'));
  const configPath = join(dir, 'config.yml');
  // JSON is YAML.
  writeFileSync(configPath, JSON.stringify(config, undefined, 2));
  const server = startProgram({ command: requireProgram('docker-registry'), args: ['serve', configPath] });
  await httpReady(`http://${host}/v2/`);
  return {
    host,
    port,
    stop: async () => {
      await server.stop();
      rmSync(dir, { recursive: true, force: true });
    },
  };
}
