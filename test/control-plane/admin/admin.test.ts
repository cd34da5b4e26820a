// The operator's commands, from the command line through the unix socket and the routes to the output.
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { Command } from 'commander';
import { z } from 'zod';
import { afterEach, beforeEach, describe, expect, test } from 'vitest';
import { addOperatorCommands } from '../../../control-plane/admin/commands.ts';
import { askDaemon, tableOf } from '../../../control-plane/admin/command.ts';
import type { Accounts } from '../../../control-plane/base/accounts/accounts.ts';
import type { Route } from '../../../control-plane/base/http/route.ts';
import type { Http } from '../../../control-plane/base/http/server.ts';
import { openOperator } from '../../kit/operator.ts';
import { openWorld, type World } from '../../kit/world.ts';

let world: World;
let accounts: Accounts;
let daemon: Http;
let directory: string;
let socketPath: string;
let faults: string[];
beforeEach(async () => {
  faults = [];
  world = await openWorld();
  ({ accounts } = world.rooms);
  const operator = openOperator(world, { loops: () => [LOOP] }, echoed);
  daemon = operator.http;
  directory = mkdtempSync(join(tmpdir(), 'svc-'));
  socketPath = join(directory, 'admin.sock');
  await daemon.listen({ socketPath });
});
afterEach(async () => {
  await daemon.close();
  await world.close();
  rmSync(directory, { recursive: true });
});

const LOOP = {
  name: 'engine',
  period_ms: 1000,
  running: false,
  runs: 3,
  last_started_ms: 0,
  last_duration_ms: null,
  last_success_ms: null,
  last_error: null,
};

/** These routes answer by themselves. The tests of the rooms prove what the others do. */
const REAL = ['Org', 'Key', 'Loops', 'Audit', 'metrics'];

/** A route that returns its request after its schemas have accepted it. A request with the id `nobody` goes to the real route. */
function echoed(each: Route): Route {
  if (each.operationId === 'adminVerifyLedger') {
    return { ...each, handler: async () => ({ status: 200, body: { ok: faults.length === 0, faults } }) };
  }
  if (REAL.some((end) => new RegExp(`${end}s?$`).test(each.operationId))) return each;
  const status = Number(Object.keys(each.responses)[0]);
  return {
    ...each,
    handler: async (call) => {
      const asked = { ...Asked.parse(call.params), ...Asked.parse(call.query), ...Asked.parse(call.body) };
      if (asked['id'] === 'nobody') return each.handler(call);
      const row = { operation: each.operationId, asked: JSON.stringify(asked) };
      return { status, body: each.path.endsWith('s') || each.path.endsWith('/why') ? listed(each.method, row) : row };
    },
  };
}

const Asked = z.record(z.string(), z.unknown()).optional();
const listed = (method: string, row: object): object => (method === 'GET' ? { data: [row] } : row);

/** The operation and the parameters that a command sent to the daemon. */
async function asked(...words: string[]): Promise<[string, Record<string, unknown>]> {
  const answer = await runJson(...words);
  const row = (answer['data'] as Record<string, unknown>[] | undefined)?.[0] ?? answer;
  return [String(row['operation']), JSON.parse(String(row['asked'])) as Record<string, unknown>];
}

const NOW_MS = Date.UTC(2026, 0, 1);
const AROUND = { readFile: () => '', now: () => NOW_MS };
/** The output of a command; throws the error of a failed command. */
async function run(...words: string[]): Promise<string> {
  const printed: string[] = [];
  const program = new Command().exitOverride().configureOutput({ writeErr: () => undefined });
  addOperatorCommands(program, {
    ask: async (_config, request) => (await askDaemon(socketPath, request)) ?? (await daemon.inject(request)),
    backup: async (_config, file) => ({ backup: file }),
    print: (text) => void printed.push(text),
    ...AROUND,
  });
  for (const command of program.commands) quiet(command);
  await program.parseAsync(words, { from: 'user' });
  return printed.join('');
}

function quiet(command: Command): void {
  command.exitOverride().configureOutput({ writeErr: () => undefined });
  for (const inner of command.commands) quiet(inner);
}

const runJson = async (...words: string[]): Promise<Record<string, unknown>> =>
  JSON.parse(await run(...words, '--json')) as Record<string, unknown>;

describe('organisations and keys', () => {
  // Specification 5: Keys are created with the command-line login of the operator.
  // Specification 5: Keys are made by the operator at the command line.
  test('are made, listed and revoked', async () => {
    const org = await runJson('admin', 'org', 'create', '--name', 'Acme');
    const orgId = String(org['id']);
    expect(await run('admin', 'org', 'list')).toContain('Acme');
    const scopes = 'instances: read, ssh_keys:write,full_access';
    const key = await runJson('admin', 'key', 'create', '--org', orgId, '--name', 'ci', '--scopes', scopes);
    expect(key['scopes']).toEqual(['instances: read', 'ssh_keys:write', 'full_access']);
    expect(await accounts.authenticate(String(key['key']), { confirmsKey: false })).toMatchObject({ orgId });
    const listed = await run('admin', 'key', 'list', '--org', orgId);
    expect(listed).toContain(String(key['prefix']));
    expect(listed).not.toContain(String(key['key']));
    expect(await run('admin', 'key', 'list', '--org', 'nobody')).toBe('none\n');
    await run('admin', 'key', 'revoke', String(key['id']));
    expect(await accounts.authenticate(String(key['key']), { confirmsKey: false })).toBeUndefined();
  });
  test('"all" stands for every scope, and keys may expire', async () => {
    const org = await runJson('admin', 'org', 'create', '--name', 'Acme');
    const common = ['admin', 'key', 'create', '--org', String(org['id']), '--name', 'ci', '--scopes'];
    const key = await runJson(...common, 'all', '--expires-in-days', '2');
    expect(key['scopes']).toContain('supply:write');
    expect(key['expires_at']).toBe(new Date(NOW_MS + 2 * 86_400_000).toISOString());
    await expect(run(...common, 'all', '--expires-in-days', 'soon')).rejects.toThrow('whole number of days');
    await expect(run(...common, 'instances: fly')).rejects.toThrow('instances: fly');
  });
  test('a refusal becomes the error of the command', async () => {
    await expect(run('admin', 'key', 'revoke', 'apk_x')).rejects.toThrow('There is no API key apk_x.');
    await expect(run('admin', 'org', 'create', '--name', '')).rejects.toThrow('at least 1 character');
    await expect(run('admin', 'org', 'create')).rejects.toThrow('--name');
  });
});

describe('pages of a list', () => {
  const CURSOR = /^There are more\. The next page: --after (\S+)$/m;
  const create = (name: string): Promise<string> => run('admin', 'org', 'create', '--name', name);

  test('are printed newest first, and the last line of each but the last says how to get the next one', async () => {
    for (const name of ['first', 'second', 'third']) {
      await create(name);
      await world.clock.advance(1);
    }
    const page = await run('admin', 'org', 'list', '--limit', '2');
    expect([...page.matchAll(/first|second|third/g)].map(String)).toEqual(['third', 'second']);
    const next = CURSOR.exec(page)?.[1] ?? '';
    const rest = await run('admin', 'org', 'list', '--limit', '2', '--after', next);
    expect([...rest.matchAll(/first|second|third/g)].map(String)).toEqual(['first']);
    expect(rest).not.toMatch(CURSOR);
  });

  test('name the next page in JSON, and the cursor is valid only with the same filter', async () => {
    const { id } = await runJson('admin', 'org', 'create', '--name', 'Acme');
    const key = ['admin', 'key', 'create', '--org', String(id), '--scopes', 'full_access', '--name'];
    for (const name of ['a', 'b']) {
      await run(...key, name);
      await world.clock.advance(1);
    }
    const list = ['admin', 'key', 'list', '--limit', '1'];
    const { data, next_cursor: next } = await runJson(...list, '--org', String(id));
    expect(data).toMatchObject([{ name: 'b' }]);
    const last = await runJson(...list, '--org', String(id), '--after', String(next));
    expect(last).toMatchObject({ data: [{ name: 'a' }], next_cursor: null });
    await expect(run(...list, '--after', String(next))).rejects.toThrow('cursor must be a next_cursor of this list');
  });

  test.each(['0', '1001', 'all'])('are not of %s rows', async (limit) => {
    await expect(run('admin', 'machine', 'list', '--limit', limit)).rejects.toThrow(/^limit must be /);
  });
});

describe('balances', () => {
  test.each([
    ['25', 2_500],
    ['25.5', 2_550],
    ['0.01', 1],
    ['999999999.99', 99_999_999_999],
  ])('%s dollars are %d cents', async (usd, cents) => {
    const added = await asked('admin', 'balance', 'add', '--org', 'o', '--usd', usd, '--reference', 'r');
    expect(added).toEqual(['adminAddBalance', { id: 'o', cents, reference: 'r' }]);
  });
  test.each(['0', '0.00', '-1', '1.005', '1e3', 'ten', ''])('%s dollars are refused', async (usd) => {
    const added = run('admin', 'balance', 'add', '--org', 'o', `--usd=${usd}`, '--reference', 'r');
    await expect(added).rejects.toThrow(/cents must be at least 1|at most two decimals/);
  });
  test('are shown as a table', async () => {
    expect(await run('admin', 'balance', 'show', '--org', 'o')).toBe(
      'operation         asked\nadminShowBalance  {"id":"o"}\n',
    );
  });
});

describe('machines, loops, ledger, metrics', () => {
  test('machines are listed, approved and suspended', async () => {
    expect(await asked('admin', 'machine', 'list')).toEqual(['adminListMachines', { limit: 100 }]);
    expect(await asked('admin', 'machine', 'approve', 'm1')).toEqual(['adminApproveMachine', { id: 'm1' }]);
    expect(await asked('admin', 'machine', 'unify', 'm1')).toEqual(['adminUnifyMachine', { id: 'm1' }]);
    expect(await asked('admin', 'machine', 'suspend', 'm1')).toEqual(['adminSuspendMachine', { id: 'm1' }]);
    expect(await asked('admin', 'machine', 'trust', 'm1')).toEqual(['adminTrustMachine', { id: 'm1' }]);
    expect(await asked('admin', 'machine', 'distrust', 'm1')).toEqual(['adminDistrustMachine', { id: 'm1' }]);
    await expect(run('admin', 'machine', 'approve', 'nobody')).rejects.toThrow('There is no machine nobody.');
  });
  test('models on the fleet are listed, shown, scaled and drained', async () => {
    const named = { model: 'acme/tiny:economy' };
    expect(await asked('admin', 'model', 'list')).toEqual(['adminListModels', {}]);
    expect(await asked('admin', 'model', 'show', named.model)).toEqual(['adminShowModel', named]);
    expect(await asked('admin', 'model', 'replicas', named.model)).toEqual(['adminListReplicas', named]);
    const scale = ['admin', 'model', 'scale', named.model];
    const limits = { min_replicas: 1, max_replicas: 3 };
    expect(await asked(...scale, '--min', '1', '--max', '3')).toEqual(['adminScaleModel', { ...named, ...limits }]);
    expect(await asked(...scale)).toEqual(['adminScaleModel', { ...named, min_replicas: null, max_replicas: null }]);
    await expect(run(...scale, '--min', 'two')).rejects.toThrow('It must be a whole number like 0 or 3.');
    expect(await asked('admin', 'model', 'drain', 'rep_1')).toEqual(['adminDrainReplica', { id: 'rep_1' }]);
  });
  test('suppliers are listed, suspended and resumed', async () => {
    expect(await asked('admin', 'supplier', 'list')).toEqual(['adminListSuppliers', { limit: 100 }]);
    expect(await asked('admin', 'supplier', 'suspend', 's1')).toEqual(['adminSuspendSupplier', { id: 's1' }]);
    expect(await asked('admin', 'supplier', 'resume', 's1')).toEqual(['adminResumeSupplier', { id: 's1' }]);
  });
  test('payouts are recorded, of an amount or of all that is owed, and listed', async () => {
    const pay = ['admin', 'payout', 'create', '--supplier', 's1', '--reference', 'r/1'];
    const entered = { id: 's1', reference: 'r/1' };
    expect(await asked(...pay, '--usd', '12.5')).toEqual(['adminCreatePayout', { ...entered, cents: 1_250 }]);
    expect(await asked(...pay)).toEqual(['adminCreatePayout', entered]);
    await expect(run(...pay, '--usd', '0')).rejects.toThrow('cents must be at least 1');
    await expect(run(...pay, '--usd', '1.005')).rejects.toThrow('at most two decimals');
    await expect(run(...pay.slice(0, 5))).rejects.toThrow('--reference');
    const named = (length: number): Promise<string> => run(...pay.slice(0, 5), '--reference', 'r'.repeat(length));
    await expect(named(256)).rejects.toThrow('reference must have at most 255 characters');
    expect(await named(255)).toContain('r'.repeat(60));
    expect(await asked('admin', 'payout', 'list')).toEqual(['adminListPayouts', { limit: 100 }]);
    expect(await asked('admin', 'payout', 'list', '--supplier', 's/1')).toEqual([
      'adminListPayouts',
      { supplier_id: 's/1', limit: 100 },
    ]);
  });
  test('disputes are listed, opened and resolved one way or the other', async () => {
    expect(await asked('admin', 'dispute', 'list')).toEqual(['adminListDisputes', { limit: 100 }]);
    const open = ['admin', 'dispute', 'open', '--instance', 'i-1', '--reason', 'no GPU'];
    expect(await asked(...open)).toEqual(['adminOpenDispute', { instance_id: 'i-1', reason: 'no GPU' }]);
    const [, since] = await asked(...open, '--since', '1970-01-02');
    expect(since).toMatchObject({ since: '1970-01-02T00:00:00Z' });
    const resolve = ['admin', 'dispute', 'resolve', 'd/1', '--note', 'seen'];
    const resolved = (refund: boolean) => ['adminResolveDispute', { id: 'd/1', refund, note: 'seen' }];
    expect(await asked(...resolve, '--refund')).toEqual(resolved(true));
    expect(await asked(...resolve, '--release')).toEqual(resolved(false));
    await expect(run(...resolve)).rejects.toThrow('use either --release or --refund');
    await expect(run(...resolve, '--release', '--refund')).rejects.toThrow('use either --release or --refund');
  });
  test('held credits are listed, released and refused with a note; the flag of an organisation is removed', async () => {
    expect(await asked('admin', 'credit', 'list')).toEqual(['adminListCredits', { limit: 100 }]);
    expect(await asked('admin', 'credit', 'flags')).toEqual(['adminListCreditFlags', { limit: 100 }]);
    for (const [verb, operation] of Object.entries({
      release: 'adminReleaseCredit',
      refuse: 'adminRefuseCredit',
      trust: 'adminTrustTenant',
    })) {
      expect(await asked('admin', 'credit', verb, 'a/b', '--note', 'seen')).toEqual([
        operation,
        { id: 'a/b', note: 'seen' },
      ]);
      await expect(run('admin', 'credit', verb, 'a/b')).rejects.toThrow('--note');
    }
  });
  test('instances are listed with filters, shown, explained, and ended with a reason', async () => {
    expect(await asked('admin', 'instance', 'list')).toEqual(['adminListInstances', { limit: 100 }]);
    const all = ['--org', 'o', '--machine', 'm', '--status', 'any', '--limit', '5'];
    expect(await asked('admin', 'instance', 'list', ...all)).toEqual([
      'adminListInstances',
      { org_id: 'o', machine_id: 'm', status: 'any', limit: 5 },
    ]);
    await expect(run('admin', 'instance', 'list', '--status', 'odd')).rejects.toThrow('status');
    expect(await asked('admin', 'instance', 'show', 'i-1')).toEqual(['adminShowInstance', { id: 'i-1' }]);
    expect(await asked('admin', 'instance', 'why', 'i/1')).toEqual(['adminExplainInstance', { id: 'i/1' }]);
    expect(await asked('admin', 'instance', 'end', 'i-1', '--reason', 'abuse')).toEqual([
      'adminEndInstance',
      { id: 'i-1', reason: 'abuse' },
    ]);
    await expect(run('admin', 'instance', 'end', 'i-1')).rejects.toThrow('--reason');
  });
  test('an unknown workload is removed, a file is backed up', async () => {
    const removed = { id: 'm1', workload_id: 'w-1' };
    expect(await asked('admin', 'machine', 'remove-unknown', 'm1', 'w-1')).toEqual([
      'adminRemoveUnknownWorkload',
      removed,
    ]);
    await expect(run('admin', 'machine', 'remove-unknown', 'm1', '../x')).rejects.toThrow('workload_id');
    expect(await run('admin', 'backup', 'here.db')).toBe('backup\nhere.db\n');
  });
  test('actions appear in the audit journal', async () => {
    await run('admin', 'machine', 'suspend', 'm1');
    const { data } = await runJson('admin', 'audit', 'list', '--since', '2020-01-01', '--limit', '1');
    expect(data).toMatchObject([{ operation: 'adminSuspendMachine', subject: 'm1', outcome: 'ok' }]);
    expect(await run('admin', 'audit', 'list', '--since', '2999-01-01')).toBe('none\n');
    for (const filter of ['actor', 'operation', 'subject'])
      expect(await run('admin', 'audit', 'list', `--${filter}`, 'other')).toBe('none\n');
    await expect(run('admin', 'audit', 'list', '--limit', '1001')).rejects.toThrow('limit');
    await expect(run('admin', 'audit', 'list', '--since', 'soon')).rejects.toThrow('since');
  });
  test('loops are listed', async () => {
    expect(await run('admin', 'loops')).toMatch(/^name .*\nengine .* 1970-01-01T00:00:00.000Z +-\n$/);
  });
  test('the ledger is verified, and faults make the command fail', async () => {
    expect(await run('ledger', 'verify')).toBe('ledger verify: OK\n');
    faults = ['debits 1 differ from credits 2'];
    await expect(run('ledger', 'verify')).rejects.toThrow('1 faults');
  });
  test('metrics are printed as text', async () => {
    const answer = await askDaemon(socketPath, { method: 'GET', url: '/metrics' });
    expect(answer?.body).toContain('http_request_duration_seconds');
  });
});

describe('reservations', () => {
  const reservation = (...words: string[]): ReturnType<typeof asked> => asked('admin', 'reservation', ...words);
  const CREATE = ['create', '--org', 'o', '--title', 'Training', '--starts', '2026-12-01'];

  test('are created from a term and GPUs by type and region', async () => {
    const term = ['--ends', '2027-03-01T12:00:00+02:00', '--renewal', 'auto_renew'];
    const gpus = ['--gpus', 'H100_SXM:8@eu-west', '--gpus', 'A100_SXM_80GB:2@us-east'];
    expect(await reservation(...CREATE, ...term, ...gpus)).toEqual([
      'adminCreateReservation',
      {
        org_id: 'o',
        title: 'Training',
        starts_at: '2026-12-01T00:00:00Z',
        ends_at: '2027-03-01T12:00:00+02:00',
        renewal: 'auto_renew',
        commitment: [
          { gpu_type: 'H100_SXM', gpu_count: 8, region: 'eu-west' },
          { gpu_type: 'A100_SXM_80GB', gpu_count: 2, region: 'us-east' },
        ],
      },
    ]);
  });
  test('are refused with the reason', async () => {
    const made = (ends: string, renewal: string, ...gpus: string[]): Promise<unknown> =>
      reservation(...CREATE, '--ends', ends, '--renewal', renewal, ...gpus.flatMap((text) => ['--gpus', text]));
    await expect(made('2027-01-01', 'none', 'H100_SXM')).rejects.toThrow('type:count@region');
    await expect(made('2027-01-01', 'none', 'H100_SXM:0@eu')).rejects.toThrow(
      'commitment[0].gpu_count must be at least 1',
    );
    await expect(made('2027-01-01', 'none', 'A:1@eu', 'A:2@eu')).rejects.toThrow('each GPU type once per region');
    await expect(made('soon', 'none', 'A:1@eu')).rejects.toThrow('ends_at');
    await expect(made('2027-01-01', 'yearly', 'A:1@eu')).rejects.toThrow('renewal');
  });
  test('are listed, shown and changed', async () => {
    expect(await reservation('list')).toEqual(['adminListReservations', { limit: 100 }]);
    for (const verb of ['show', 'suspend', 'resume', 'cancel', 'reassign']) {
      const operation = `admin${verb.charAt(0).toUpperCase()}${verb.slice(1)}Reservation`;
      expect(await reservation(verb, '01J/X')).toEqual([operation, { id: '01J/X' }]);
    }
    expect(await reservation('extend', '01JX', '--ends', '2027-06-01')).toEqual([
      'adminExtendReservation',
      { id: '01JX', ends_at: '2027-06-01T00:00:00Z' },
    ]);
  });
});

test('a table shows lists, the beginning of nested values, missing values, and nothing that a terminal obeys', () => {
  const rows = [
    { a: ['x', 'y', 'z'], b: null },
    { a: '', b: { c: 1 } },
    { a: ['x', 'y', 'z', 'u', 'v'], b: { c: 'd'.repeat(200) } },
    { a: 'e\u001b[2Ju\nFAKE', b: { c: '\u009b2J' } },
  ];
  expect(tableOf(rows)).toBe(
    `a                   b\nx, y, z             -\n-                   {"c":1}\nx, y, z and 2 more  {"c":"${'d'.repeat(94)}...\neu FAKE             {"c":""}\n`,
  );
});

test('every command and every option has a description', () => {
  const program = new Command();
  addOperatorCommands(program, { ask: undefined, backup: undefined, print: undefined, now: undefined } as never);
  const all = (command: Command): Command[] => [command, ...command.commands.flatMap(all)];
  const silent = program.commands
    .flatMap(all)
    .flatMap((command) => [
      ...(command.description() === '' ? [command.name()] : []),
      ...command.options
        .filter((option) => option.description === '')
        .map((option) => `${command.name()} ${option.flags}`),
    ]);
  expect(silent).toEqual([]);
});

test('an internal error names the request id for the log', async () => {
  const program = new Command();
  const problem = { code: 'internal_error', detail: 'Something went wrong.', request_id: 'req_1' };
  const ask = async () => ({ status: 500, body: JSON.stringify(problem) });
  addOperatorCommands(program, { ask, backup: async () => ({}), print: () => undefined, ...AROUND });
  const parsed = program.parseAsync(['admin', 'loops'], { from: 'user' });
  await expect(parsed).rejects.toThrow('Something went wrong. (req_1)');
});
