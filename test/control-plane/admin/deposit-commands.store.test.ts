// The operator's commands for deposits, from the command line to the chain.
import { Command } from 'commander';
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, beforeAll, expect, test } from 'vitest';
import { addOperatorCommands } from '../../../control-plane/admin/commands.ts';
import { readNamed } from '../../../shared/yaml-config.ts';
import { type EvmChain, startEvmChain } from '../../kit/evm-chain.ts';
import { openOperator } from '../../kit/operator.ts';
import { type DepositWorld, MINUTE_MS, openDepositWorld, settingsFor, TOKEN } from '../money/deposits/deposit-world.ts';

const START_MS = Date.UTC(2026, 0, 1);
const dir = mkdtempSync(join(tmpdir(), 'deposit-commands-'));
let chain: EvmChain;
let deposits: DepositWorld;
beforeAll(async () => {
  chain = await startEvmChain(START_MS - 10 * MINUTE_MS);
  await chain.finalize(START_MS - 5 * MINUTE_MS);
  deposits = await openDepositWorld(settingsFor(chain, { oracle: null }));
  await deposits.settle();
});
afterAll(async () => {
  await deposits.world.verify();
  await deposits.world.close();
  await chain.close();
  rmSync(dir, { recursive: true });
});

/** What a command prints; throws the error of a failed command. */
async function run(...words: string[]): Promise<string> {
  const printed: string[] = [];
  const { http } = openOperator(deposits.world);
  const program = new Command();
  addOperatorCommands(program, {
    ask: async (_config, request) => http.inject(request),
    readFile: (path) => readNamed('<file>', path, (each) => readFileSync(each, 'utf8')),
    backup: async () => ({}),
    print: (text) => void printed.push(text),
    now: () => deposits.world.clock.now(),
  });
  const quiet = (command: Command): void => {
    command.exitOverride().configureOutput({ writeErr: () => undefined });
    command.commands.forEach(quiet);
  };
  quiet(program);
  await program.parseAsync(['admin', 'deposit', ...words], { from: 'user' });
  return printed.join('');
}

test('every command of the manual does what it says', async () => {
  const [held, open] = [await deposits.create(), await deposits.create()];
  const hash = await chain.pay(held.address, 25n * TOKEN, START_MS + MINUTE_MS);
  await chain.finalize(START_MS + 2 * MINUTE_MS);
  await deposits.settle();
  expect(await run('chains')).toMatch(/ethereum +- /);
  const waiting = await run('list', '--waiting');
  expect([waiting.includes(held.id), waiting.includes(open.id)]).toEqual([true, false]);
  expect(await run('list', '--org', deposits.who.orgId, '--status', 'created')).toContain(open.id);
  expect(await run('show', held.id)).toMatch(/held_screening[^]*transfers:[^]*25\.00 +0x/);
  expect(JSON.parse(await run('show', held.id, '--json'))).toMatchObject({ transfers: [{ tx_hash: hash }] });
  expect(await run('credit', held.id, '--reason', 'asked')).toContain('credited');
  expect(await run('reject', open.id, '--reason', 'cancelled')).toContain('failed');
  await expect(run('returned', held.id, '--tx', hash, '--reason', 'sent back')).rejects.toThrow('is in suspense');
  expect(await run('rescan', held.id, '--tx', hash, '--reason', 'again')).toContain(held.id);
  expect(await run('addresses', 'list')).toContain(open.address);
  const line = `0,${held.address},ethereum,usdc,25.00,25.00`;
  expect(await run('addresses', 'export', '--chain', 'ethereum')).toBe(
    `index,address,chain,asset,received,balance\r\n${line}\r\n`,
  );
  const file = join(dir, 'list.txt');
  writeFileSync(file, `${chain.sanctioned}\n\n  ${chain.payer}  \r\n`);
  expect(await run('screening', 'import', file, '--source', 'x')).toMatch(/2 +2/);
  writeFileSync(file, 'EPjFWdd5AufqSSqeM2qN1xzybapC8G4wEGGkZwyTDt1v\n');
  expect(await run('addresses', 'import', file)).toContain('imported');
  await expect(run('addresses', 'import', file)).rejects.toThrow('must not be imported again');
  expect(await run('addresses', 'list', '--family', 'solana')).toContain('EPjFWdd5');
  expect(await run('addresses', 'retire', '--reason', 'restored')).toMatch(/retired\n1/);
  const missing = run('screening', 'import', join(dir, 'none'), '--source', 'x');
  await expect(missing).rejects.toThrow('<file> names');
  expect(await run('rewind', 'ethereum', '--block', '1', '--reason', 'x')).toMatch(/ethereum +2/);
  await expect(run('rewind', 'bitcoin', '--block', '1', '--reason', 'x')).rejects.toThrow('bitcoin is not a chain');
  // The shell leaves an empty text of a variable that is not set.
  for (const block of ['', 'x', '1e1', '-1'])
    await expect(run('rewind', 'ethereum', '--block', block, '--reason', 'x')).rejects.toThrow(
      'must be the number of a block',
    );
  await deposits.settle();
  expect(await deposits.cents()).toBe(2_500);
});
