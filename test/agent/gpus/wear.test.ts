// Cards that must not get a new rental: what nvidia-smi reports of memory and MIG mode, for all kinds of cards, and drivers without the query.
import { chmodSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, expect, test } from 'vitest';
import { parseMig, parseWear, readUnfit } from '../../../agent/gpus/nvidia-smi.ts';

const dir = mkdtempSync(join(tmpdir(), 'wear-'));
afterAll(() => rmSync(dir, { recursive: true }));

const rows = (cells?: string[]): string[][] => (cells === undefined ? [] : [['GPU-1', ...cells]]);

test.each([
  ['a consumer card', ['[N/A]', '[N/A]'], ['[N/A]', '[N/A]']],
  ['an older answer of one', ['[Not Supported]', '[Not Supported]'], undefined],
  ['a card without errors', ['0', 'No'], ['No', 'No']],
  ['a lost card', ['[GPU is lost]', '[GPU is lost]'], ['[GPU is lost]', '[GPU is lost]']],
])('nothing speaks against %s', (_what, retired, remapped) => {
  expect(parseWear(rows(retired), rows(remapped)).size).toBe(0);
});

test.each([
  ['an error since the last reset', ['2', '[N/A]'], ['Yes', 'No'], '2 memory errors since its last reset'],
  ['pages to retire', ['0', 'Yes'], undefined, 'pages wait for a reset'],
  ['rows to replace', ['0', '[N/A]'], ['Yes', 'No'], 'rows wait for a reset'],
  ['rows to replace, in numbers', ['0', '[N/A]'], ['1', '0'], 'rows wait for a reset'],
  ['no row left', ['0', '[N/A]'], ['No', 'Yes'], 'cannot be replaced any more'],
])('%s keep the card from somebody new', (_what, retired, remapped, words) => {
  expect(parseWear(rows(retired), rows(remapped)).get('GPU-1')).toContain(words);
});

test('a query that the driver does not know is no fault', async () => {
  const smi = join(dir, 'nvidia-smi');
  const answers = [
    'case $1 in',
    '*remapped*) echo "Invalid combination of input arguments."; exit 1 ;;',
    `*mig*) echo 'Field "mig.mode.current" is not a valid field to query.'; exit 2 ;;`,
    '*) echo "GPU-1, 3, No" ;;',
    'esac',
  ].join('\n');
  writeFileSync(smi, `#!/bin/sh\n${answers}\n`);
  chmodSync(smi, 0o755);
  expect([...(await readUnfit(smi)).keys()]).toEqual(['GPU-1']);
});

test.each(['Disabled', '[N/A]', '[Not Supported]', ''])(
  'nothing speaks against a card whose MIG mode is "%s"',
  (mode) => {
    expect(parseMig(rows(['0', 'No', mode])).size).toBe(0);
  },
);

test('MIG mode keeps the card from somebody new and names the command that ends it; a fault of its memory comes first', async () => {
  const smi = join(dir, 'mig-smi');
  const answers = 'case $1 in *mig*) echo "GPU-1, 3, No, Enabled"; echo "GPU-2, 0, No, Enabled";; esac';
  writeFileSync(smi, `#!/bin/sh\n${answers}\n`, { mode: 0o755 });
  const unfit = await readUnfit(smi);
  expect(unfit.get('GPU-1')).toContain('3 memory errors');
  expect(unfit.get('GPU-2')).toBe('MIG mode is on: nvidia-smi -i GPU-2 -mig 0');
});
