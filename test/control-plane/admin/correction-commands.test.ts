// The operator's commands for corrections and bookkeeping, from the command line to the ledger.
import { afterEach, beforeEach, describe, expect, test } from 'vitest';
import { revenue, wallet } from '../../../control-plane/money/ledger/accounts.ts';
import { runCommand } from '../../kit/operator-commands.ts';
import { openWorld, type World } from '../../kit/world.ts';

let world: World;
let orgId: string;
let asked: string[];
beforeEach(async () => {
  asked = [];
  world = await openWorld();
  ({ orgId } = await world.customer(1_000));
});
afterEach(() => world.close());

const run = (...words: string[]): Promise<string> => runCommand(world, words, asked);

const why = (reference: string): string[] => ['--reason', 'slow disk', '--reference', reference];
const charge = (id: string, amountUcents: bigint, evidence?: string): Promise<void> =>
  world.db.tx('test.charge', (tx) => {
    const about = {
      id,
      debit: wallet(orgId),
      credit: revenue,
      kind: 'inference.charge',
      subjectId: id,
      effectiveMs: 1,
    };
    return world.rooms.ledger.post(tx, id, [{ ...about, amountUcents, ...(evidence && { evidence }) }]);
  });
const audited = async (): Promise<[string, string | null][]> =>
  (await world.audit.list(world.db.read, {}, { count: 100 })).map((entry) => [entry.operation, entry.subject_id]);

test('a charge is refunded, a credit is given and a balance is corrected, each with an entry of the audit', async () => {
  await charge('rcp_1', 200_000_000n);
  expect(await run('admin', 'refund', 'rcp_1', '--usd', '0.5', ...why('a'))).toMatch(/ 0\.50 .* slow disk /);
  expect(await run('admin', 'refund', 'rcp_1', '--from-platform', ...why('b'))).toMatch(/ 1\.50 /);
  await expect(run('admin', 'refund', 'rcp_1', ...why('c'))).rejects.toThrow('Nothing of rcp_1 is left to refund.');
  await run('admin', 'credit', 'grant', '--org', orgId, '--usd', '0.00000001', ...why('d'));
  await run('admin', 'adjust', '--org', orgId, '--up', '3', ...why('e'));
  const down = ['admin', 'adjust', '--org', orgId, '--down', '100', ...why('f')];
  await expect(run(...down)).rejects.toThrow('--allow-debt');
  expect(await run(...down, '--allow-debt')).toMatch(/ -13\.00000001 .* 86\.99999999 /);
  expect(await audited()).toEqual(
    expect.arrayContaining([
      ['adminRefund', expect.stringMatching(/^cor_/)],
      ['adminGrantCredit', expect.stringMatching(/^cor_/)],
      ['adminAdjustBalance', expect.stringMatching(/^cor_/)],
    ]),
  );
});

test.each([
  ['0', 'must be more than 0'],
  ['-1', 'must not be negative'],
  ['1.123456789', 'must have at most 8 decimals'],
  ['1e3', 'must be dollars like 25 or 25.50'],
  ['1000000001', 'must be at most 1000000000.00'],
])('the amount %s is refused: %s', async (usd, rule) => {
  const about = ['--org', orgId, ...why('a')];
  await expect(run('admin', 'credit', 'grant', `--usd=${usd}`, ...about)).rejects.toThrow(rule);
  await expect(run('admin', 'adjust', `--down=${usd}`, ...about)).rejects.toThrow(rule);
  await expect(run('admin', 'refund', 'rcp_1', `--usd=${usd}`, ...why('a'))).rejects.toThrow(rule);
});

test('an adjustment has one direction, and a correction has a reason and a reference', async () => {
  const both = run('admin', 'adjust', '--org', orgId, '--up', '1', '--down', '1', ...why('a'));
  await expect(both).rejects.toThrow('use either --up or --down');
  await expect(run('admin', 'adjust', '--org', orgId, ...why('a'))).rejects.toThrow('use either --up or --down');
  await expect(run('admin', 'refund', 'x', '--reason', 'r')).rejects.toThrow('--reference');
  await expect(run('admin', 'refund', 'x', '--reference', 'r')).rejects.toThrow('--reason');
});

describe('bookkeeping', () => {
  test('prints the statement of a month as a table, as CSV and as JSON', async () => {
    await charge('rcp_1', 1n, '=small');
    const statement = ['admin', 'statement', '--org', orgId];
    expect(await run(...statement)).toMatch(/opening_balance .* 0\.00 [^]*deposit [^]*closing_balance .* 9\.99999999 /);
    expect(await run(...statement, '--csv')).toContain(",inference,,'=small,,1,-0.00000001,USD,");
    expect(JSON.parse(await run(...statement, '--json'))).toMatchObject({ closing_balance: '9.99999999' });
    await expect(run(...statement, '--month', '2999-01')).rejects.toThrow('month must not be in the future');
  });

  test('exports one row for each transfer, page after page', async () => {
    const count = 1_001;
    await world.db.tx('test.charges', async (tx) => {
      const about = {
        debit: wallet(orgId),
        credit: revenue,
        kind: 'inference.charge',
        amountUcents: 1n,
        effectiveMs: 1,
      };
      const transfers = Array.from({ length: count }, (_, n) => ({ ...about, id: `t${n}`, subjectId: `r,${n}` }));
      for (let i = 0; i < count; i += 100) await world.rooms.ledger.post(tx, `b${i}`, transfers.slice(i, i + 100));
    });
    await world.clock.advance(61_000);
    const rows = (await run('admin', 'export', '--from', '2000-01-01', '--to', '2100-01-01')).trimEnd().split('\r\n');
    expect(rows[0]).toBe(
      'transfer_id,batch_id,posted_at,effective_at,kind,debit_account,credit_account,amount,currency,subject_id,evidence',
    );
    expect(rows).toHaveLength(1 + 1 + count);
    expect(new Set(rows).size).toBe(rows.length);
    expect(rows.at(-1)).toMatch(/^t\d+,b\d+,.*,inference\.charge,customer_wallet:.*,0\.00000001,USD,"r,\d+",$/);
    expect(asked).toHaveLength(2);
    await expect(run('admin', 'export', '--from', '2026-01-01', '--to', '2026-01-01')).rejects.toThrow('after from');
    // The shell leaves an empty text of a variable that is not set. All transfers of everybody are not what was asked for.
    for (const option of ['org', 'subject', 'kind'])
      await expect(
        run('admin', 'export', '--from', '2026-01-01', '--to', '2026-02-01', `--${option}`, ''),
      ).rejects.toThrow(option);
  });
});
