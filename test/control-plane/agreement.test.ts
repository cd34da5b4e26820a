// What all control planes must have alike: the settings that decide about money or about what customers see, and nothing that may differ.
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, beforeEach, expect, test } from 'vitest';
import { agreedDigests } from '../../control-plane/agreement.ts';
import { readConfig } from '../../control-plane/config.ts';
import { settingsOf } from '../../control-plane/operator-files.ts';
import { modelsFile } from '../kit/models.ts';

let directory: string;
beforeEach(() => {
  directory = mkdtempSync(join(tmpdir(), 'agreement-'));
});
afterEach(() => rmSync(directory, { recursive: true }));

const at = (name: string): string => join(directory, name);

function write(name: string, text: string): string {
  writeFileSync(at(name), text);
  return at(name);
}

function digests(settings: object): Readonly<Record<string, string>> {
  const path = write('config.yaml', JSON.stringify(settings));
  const config = readConfig(path);
  return agreedDigests(config, settingsOf(config));
}

const MODELS = modelsFile('http://127.0.0.1:9/v1');
const DEPOSITS = { chains: { solana: { rpc_url: 'https://one.example.com/key' } } };

test.each<[string, () => object, () => object, string[]]>([
  ['fees', () => ({}), () => ({ platform_fee_bps: 100 }), ['platform_fee_bps']],
  ['no models', () => ({ models_file: write('a', MODELS) }), () => ({}), ['models_file']],
  [
    'models with other prices',
    () => ({ models_file: write('a', MODELS) }),
    () => ({ models_file: write('b', MODELS.replace(/(?<=_cents"?: ?)\d+/, '987654')) }),
    ['models_file'],
  ],
  [
    'another store of files',
    () => ({ blobs_dir: '/data/one' }),
    () => ({ blobs_dir: '/data/two' }),
    ['blobs_dir or blobs_s3'],
  ],
  ['no deposits', () => ({ deposits: DEPOSITS }), () => ({}), ['deposits']],
  ['another address', () => ({}), () => ({ base_url: 'https://api.example.com/v1' }), ['base_url']],
  [
    'the same models in another file',
    () => ({ models_file: write('a', MODELS) }),
    () => ({ models_file: write('b', `${MODELS}\n# same`) }),
    [],
  ],
  [
    'another node of a chain',
    () => ({ deposits: DEPOSITS }),
    () => ({ deposits: { chains: { solana: { rpc_url: 'https://two.example.com/key' } } } }),
    [],
  ],
  [
    'other addresses of its own',
    () => ({}),
    () => ({ listen: { host: '127.0.0.2', port: 81 }, ssh: { host: '127.0.0.2' } }),
    [],
  ],
])('%s: the settings that differ are named', (_what, one, other, names) => {
  const [a, b] = [digests(one()), digests(other())];
  expect(Object.keys(a).filter((name) => a[name] !== b[name])).toEqual(names);
});
