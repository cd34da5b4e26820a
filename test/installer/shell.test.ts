// The shell files of the package, as shellcheck judges them, and the configuration that install.sh brings.
import { globSync } from 'node:fs';
import { resolve } from 'node:path';
import { expect, test } from 'vitest';
import { readConfig as readAgentConfig } from '../../agent/config.ts';
import { readConfig } from '../../control-plane/config.ts';
import { capture } from '../kit/capture.ts';
import { requireProgram } from '../kit/setup.ts';

const INSTALLER = resolve(import.meta.dirname, '../../installer');

test('shellcheck finds no fault', async () => {
  const files = globSync(['install.sh', 'bin/*', 'deb/*'], { cwd: INSTALLER }).map((file) => resolve(INSTALLER, file));
  expect(files).toHaveLength(7);
  const { code, stdout } = await capture([requireProgram('shellcheck'), '--shell=sh', ...files]);
  expect({ code, said: stdout.toString() }).toEqual({ code: 0, said: '' });
});

test('the installed configuration equals the defaults, and the options in its comments are accepted', async () => {
  const [agent, controlPlane] = [resolve(INSTALLER, 'agent.yaml'), resolve(INSTALLER, 'control-plane.yaml')];
  expect(await readAgentConfig(agent)).toEqual(await readAgentConfig(undefined));
  expect(readConfig(controlPlane)).toMatchObject({ base_url: 'http://127.0.0.1:8080/v1', platform_fee_bps: 1500 });
});
