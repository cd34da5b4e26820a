// A private image registry on the loopback interface (Debian's docker-registry), and the images tests need in it.
import { mkdirSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { freePort } from './ports.ts';
import { httpReady, startProgram } from './processes.ts';
import { requireProgram } from './setup.ts';

export interface Registry {
  /** `127.0.0.1:port`, the first part of an image's name. Speaks plain HTTP. */
  host: string;
  port: number;
  /** Another registry of the same images that asks everybody for authorization. */
  guarded(auth: RegistryAuth): Promise<Guarded>;
  stop(): Promise<void>;
}

export type Guarded = Pick<Registry, 'host' | 'port' | 'stop'>;

/** `basic`: `LOGIN` as HTTP Basic. `token`: tokens of a server of the test, whose certificate is in the file. */
export type RegistryAuth =
  | { kind: 'basic' }
  | { kind: 'token'; realm: string; service: string; issuer: string; certificateFile: string };

/** What a registry that is guarded by Basic takes. */
export const LOGIN = { username: 'puller', password: 'pull-me' };
/** bcrypt of the password above. */
const LOGIN_HASH = '$2y$05$abcdefghijklmnopqrstuuBp.n58v886n7kD7.z9i0nzqxtQ8I2P.';

export async function startRegistry(): Promise<Registry> {
  const dir = mkdtempSync(join(tmpdir(), 'registry-'));
  mkdirSync(join(dir, 'data'));
  const open = await serve(dir, {});
  return {
    ...open,
    guarded: (auth) => serve(dir, { auth: authConfig(dir, auth) }),
    stop: async () => {
      await open.stop();
      rmSync(dir, { recursive: true, force: true });
    },
  };
}

/** Any number of them may serve one folder. */
async function serve(dir: string, more: object): Promise<Guarded> {
  const port = await freePort();
  const host = `127.0.0.1:${port}`;
  const config = {
    version: 0.1,
    log: { level: 'warn', accesslog: { disabled: true } },
    storage: { filesystem: { rootdirectory: join(dir, 'data') }, delete: { enabled: true } },
    http: { addr: host },
    ...more,
  };
  const configPath = join(dir, `config-${port}.yml`);
  // JSON is YAML.
  writeFileSync(configPath, JSON.stringify(config, undefined, 2));
  const server = startProgram({ command: requireProgram('docker-registry'), args: ['serve', configPath] });
  await httpReady(`http://${host}/v2/`);
  return { host, port, stop: async () => void (await server.stop()) };
}

function authConfig(dir: string, auth: RegistryAuth): object {
  if (auth.kind === 'token') {
    const { realm, service, issuer, certificateFile } = auth;
    return { token: { realm, service, issuer, rootcertbundle: certificateFile } };
  }
  const path = join(dir, 'htpasswd');
  writeFileSync(path, `${LOGIN.username}:${LOGIN_HASH}\n`);
  return { htpasswd: { realm: 'registry', path } };
}
