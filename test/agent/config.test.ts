// The agent's configuration file: what is accepted, and how mistakes are reported.
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, expect, test } from 'vitest';
import { readConfig } from '../../agent/config.ts';

const dir = mkdtempSync(join(tmpdir(), 'config-'));
afterAll(() => rmSync(dir, { recursive: true }));

async function read(text: string): Promise<unknown> {
  const file = join(dir, 'agent.yaml');
  writeFileSync(file, text);
  return readConfig(file).catch((error: unknown) => String(error).replaceAll(`${dir}/`, ''));
}

test('every setting has its default if there is no file or an empty one', async () => {
  const defaults = await readConfig(undefined);
  expect(defaults).toEqual({
    state_dir: '/var/lib/svc-agent',
    docker_socket: '/var/run/docker.sock',
    nvidia_smi: 'nvidia-smi',
    excluded_gpus: [],
    network_fence: 'nftables',
    log_level: 'info',
    image_disk_percent: { high: 80, low: 70 },
    quarantine_minutes: 15,
  });
  expect(await read('')).toEqual(defaults);
});

test('without an option, the installed file counts', async () => {
  await read('log_level: warn');
  expect(await readConfig(undefined, join(dir, 'agent.yaml'))).toMatchObject({ log_level: 'warn' });
  const folder = await readConfig(undefined, dir).catch(String);
  expect(folder).toBe(`Error: the default of --config names ${dir}, which is a directory`);
});

test('a mistake is reported with its line', async () => {
  expect(await read('log_level: debug\n\nstate_dri: /x\n')).toBe(
    'Error: agent.yaml:3: state_dri: is not a known field',
  );
  expect(await read('log_level: loud\n')).toContain('agent.yaml:1: log_level: ');
  expect(await read('# comment\nquarantine_minutes: soon\n')).toContain('agent.yaml:2: quarantine_minutes: ');
  expect(await read('image_disk_percent: { high: 50, low: 60 }\n')).toContain('low must not be above high');
  expect(await read('state_dir: relative\n')).toBe('Error: agent.yaml:1: state_dir: must be an absolute path');
  expect(await read(`state_dir: /${'x'.repeat(60)}\n`)).toContain('at most 55 characters');
  expect(await read('a: [\n')).toContain('agent.yaml:');
});

test('all mistakes are reported at once', async () => {
  expect(await read('one: 1\ntwo: 2\n')).toBe(
    'Error: agent.yaml:1: one: is not a known field\nagent.yaml:2: two: is not a known field',
  );
});
