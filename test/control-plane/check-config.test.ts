// `check-config` finds all mistakes of all files at once, and leaves nothing behind.
import { mkdtempSync, readdirSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join, resolve } from 'node:path';
import { afterEach, beforeEach, expect, test } from 'vitest';
import { checkConfig } from '../../control-plane/check-config.ts';
import { capture } from '../kit/capture.ts';
import { modelsFile } from '../kit/models.ts';

const LAUNCHER = resolve(import.meta.dirname, '../../control-plane/svc-control-plane.js');

let directory: string;
beforeEach(() => {
  directory = mkdtempSync(join(tmpdir(), 'check-'));
});
afterEach(() => rmSync(directory, { recursive: true }));

const at = (name: string): string => join(directory, name);

function write(name: string, content: string | object): string {
  writeFileSync(at(name), typeof content === 'string' ? content : JSON.stringify(content), { mode: 0o600 });
  return at(name);
}

/** The folders of its data do not exist, as on the machine on which somebody writes the configuration. */
function configure(settings: object): string {
  const data = { database: { sqlite: '/no/data/db' }, secret_file: '/no/data/secret', admin_socket: '/no/run/admin' };
  return write('config.yaml', { ...data, ...settings });
}

test('a right configuration with right files has no mistake', () => {
  const path = configure({ models_file: write('models.yaml', modelsFile('http://127.0.0.1:9/v1')) });
  expect(checkConfig(path)).toEqual({ path, faults: [], warnings: [] });
});

test('the mistakes of all files are found at once, each of them once', () => {
  const { faults } = checkConfig(
    configure({
      base_url: 'https://api.example.com/v1',
      models_file: write('models.yaml', 'models:\n  - id: nobody\n'),
      templates_file: at('no-templates.yaml'),
      environments_file: write('environments.yaml', 'frameworks: 7\n'),
      tls: { certificate_file: at('no-cert'), key_file: at('no-key') },
      apps: {
        domain: 'apps.example.net',
        listen: { host: '127.0.0.1', port: 8443 },
        tls: { certificate_file: at('no-other-cert'), key_file: at('no-key') },
      },
      smtp: { host: 'mail.example.com', from: 'svc@example.com', username: 'svc', password_file: at('no-password') },
      oidc: { issuer: 'https://login.example.com', client_id: 'svc', client_secret_file: at('no-client-secret') },
      blobs_s3: {
        endpoint: 'https://s3.example.com',
        bucket: 'files',
        access_key_file: at('no-access-key'),
        secret_key_file: at('no-secret-key'),
      },
      secret_file: write('secret', 'short'),
    }),
  );
  expect(faults).toEqual(
    [
      `templates_file names ${at('no-templates.yaml')}, which does not exist`,
      `${at('environments.yaml')}:1: frameworks`,
      `${at('models.yaml')}:2: models[0]`,
      `tls.certificate_file names ${at('no-cert')}`,
      `apps.tls.certificate_file names ${at('no-other-cert')}`,
      `smtp.password_file names ${at('no-password')}`,
      `oidc.client_secret_file names ${at('no-client-secret')}`,
      `blobs_s3.access_key_file names ${at('no-access-key')}`,
      'must hold 32 bytes as 64 hexadecimal characters',
    ].map((part) => expect.stringContaining(part)),
  );
});

test('what an operator probably does not want is a warning', () => {
  const path = configure({ listen: { host: '0.0.0.0', port: 8080 } });
  expect(checkConfig(path)).toMatchObject({ faults: [], warnings: [expect.stringMatching(/^base_url is /)] });
});

test('the command prints what it finds, makes no file, and its exit code says whether the daemon would start', async () => {
  const check = async (settings: object): Promise<[number | null, string, string]> => {
    const path = configure({ database: { sqlite: at('db') }, secret_file: at('secret'), ...settings });
    const { code, stdout, stderr } = await capture([process.execPath, LAUNCHER, 'check-config', '--config', path]);
    expect(readdirSync(directory)).toEqual(['config.yaml']);
    return [code, stdout.toString(), stderr];
  };
  expect(await check({ listen: { host: '0.0.0.0', port: 8080 } })).toEqual([
    0,
    `no mistake was found in ${at('config.yaml')} and the files that it names\n`,
    expect.stringMatching(/^warning: base_url is /),
  ]);
  const faults = { models_file: at('no-models'), templates_file: at('no-templates') };
  expect(await check(faults)).toEqual([
    1,
    '',
    `templates_file names ${at('no-templates')}, which does not exist\nmodels_file names ${at('no-models')}, which does not exist\n`,
  ]);
  expect(await check({ listen: 7, drain_seconds: -1 })).toEqual([
    1,
    '',
    expect.stringMatching(/listen: [^]*drain_seconds: /),
  ]);
});
