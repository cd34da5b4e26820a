// The operator's commands, from their words on the command line through the unix socket and the routes to what they print.
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { Command } from 'commander';
import { afterEach, beforeEach, describe, expect, test } from 'vitest';
import { openAdmin } from '../../../control-plane/admin/admin.ts';
import { openAudit } from '../../../control-plane/admin/audit.ts';
import { addOperatorCommands } from '../../../control-plane/admin/commands.ts';
import { askDaemon } from '../../../control-plane/admin/daemon-door.ts';
import type { Fields } from '../../../control-plane/admin/fields.ts';
import type { ReservationCommands } from '../../../control-plane/admin/reservation-routes.ts';
import type { AdminDeps } from '../../../control-plane/admin/routes.ts';
import { tableOf } from '../../../control-plane/admin/table.ts';
import { type Accounts, openAccounts } from '../../../control-plane/base/accounts/accounts.ts';
import type { Db } from '../../../control-plane/base/db/db.ts';
import { openMetrics } from '../../../control-plane/base/http/metrics.ts';
import type { Http } from '../../../control-plane/base/http/server.ts';
import { systemClock } from '../../../shared/clock.ts';
import { fail } from '../../../shared/errors.ts';
import { createIds } from '../../../shared/ids.ts';
import { createLog } from '../../../shared/log.ts';
import { systemRng } from '../../../shared/rng.ts';
import { openTestDb } from '../../kit/databases.ts';

const directoryOf = (room: string) => new URL(`../../../control-plane/${room}/migrations/`, import.meta.url);
const ROOMS = ['base/http', 'base/accounts', 'admin'].map((room) => ({ room, directory: directoryOf(room) }));

let db: Db;
let accounts: Accounts;
let daemon: Http;
let directory: string;
let socketPath: string;
let faults: string[];
let credits: Map<string, number>;
beforeEach(async () => {
  const clock = systemClock();
  const ids = createIds(clock, systemRng());
  const metrics = openMetrics();
  const log = createLog('test', 'silent');
  faults = [];
  credits = new Map();
  db = await openTestDb(ROOMS);
  accounts = openAccounts({ db, clock, ids });
  const audit = openAudit({ db, clock, ids });
  daemon = openAdmin({ ...plantedRooms(), accounts, metrics }, audit, {
    db,
    clock,
    ids,
    log,
    metrics,
    ready: async () => [],
    hasRoom: () => true,
  });
  directory = mkdtempSync(join(tmpdir(), 'svc-'));
  socketPath = join(directory, 'admin.sock');
  await daemon.listen({ socketPath });
});
afterEach(async () => {
  await daemon.close();
  await db.close();
  rmSync(directory, { recursive: true });
});

function plantedRooms(): Omit<AdminDeps, 'accounts' | 'metrics'> {
  const balanceOf = (orgId: string): Fields => ({
    org_id: orgId,
    cents: [...credits.values()].reduce((a, b) => a + b, 0),
  });
  const machine = (id: string, status: string): Fields => ({ id, status, gpu_type: null });
  return {
    balance: {
      add: async (orgId, cents, reference) => {
        credits.set(reference, cents);
        return balanceOf(orgId);
      },
      show: async (orgId) => balanceOf(orgId),
    },
    machines: {
      list: async () => [machine('m1', 'listed')],
      unify: async (id) => machine(id, 'listed'),
      approve: async (id) => (id === 'm1' ? machine(id, 'listed') : fail('not_found', `There is no machine ${id}.`)),
      suspend: async (id) => machine(id, 'suspended'),
      removeWorkload: async (id, workloadId) => ({ machine_id: id, workload_id: workloadId }),
    },
    suppliers: {
      list: async () => [{ supplier_id: 's1' }],
      suspend: async (id) => ({ supplier_id: id, status: 'suspended' }),
      resume: async (id) => ({ supplier_id: id, status: 'active' }),
      pay: async (id, cents, reference) => ({ supplier_id: id, amount_cents: cents, reference }),
      payouts: async (id) => [{ supplier_id: id ?? 'all' }],
    },
    disputes: {
      list: async () => [{ dispute_id: 'd1' }],
      open: async (dispute) => ({ asked: JSON.stringify(dispute) }),
      resolve: async (id, resolution) => ({ asked: `${id} ${JSON.stringify(resolution)}` }),
    },
    instances: {
      list: async (filter) => [{ asked: JSON.stringify(filter) }],
      show: async (id) => ({ asked: `show ${id}` }),
      why: async (id) => [{ asked: `why ${id}` }],
      end: async (id, reason) => ({ asked: `end ${id} ${reason}` }),
    },
    credits: {
      list: async () => [{ credit_id: 'c1' }],
      release: async (id, note) => ({ asked: `release ${id} ${note}` }),
      refuse: async (id, note) => ({ asked: `refuse ${id} ${note}` }),
      flags: async () => [{ org_id: 'o1' }],
      trust: async (orgId, note) => ({ asked: `trust ${orgId} ${note}` }),
    },
    reservations: plantedReservations(),
    reload: async () => ({ models: 3, templates: 2 }),
    ledger: { verify: async () => faults },
    loops: () => [
      {
        name: 'engine',
        period_ms: 1000,
        running: false,
        runs: 3,
        last_started_ms: 0,
        last_duration_ms: null,
        last_success_ms: null,
        last_error: null,
      },
    ],
  };
}

/** One contract that shows what was asked of it last. */
function plantedReservations(): ReservationCommands {
  const asked = async (...words: unknown[]): Promise<Fields> => ({ asked: words.map(String).join(' ') });
  return {
    create: (request) => asked('create', JSON.stringify(request)),
    list: async () => [await asked('list')],
    show: (id) => asked('show', id),
    suspend: (id) => asked('suspend', id),
    resume: (id) => asked('resume', id),
    cancel: (id) => asked('cancel', id),
    reassign: (id) => asked('reassign', id),
    extend: (id, untilMs) => asked('extend', id, new Date(untilMs).toISOString()),
  };
}

/** What a command printed; throws what it failed with. */
async function run(...words: string[]): Promise<string> {
  const printed: string[] = [];
  const program = new Command().exitOverride().configureOutput({ writeErr: () => undefined });
  addOperatorCommands(program, {
    ask: async (_config, request) => (await askDaemon(socketPath, request)) ?? (await daemon.inject(request)),
    backup: async (_config, file) => ({ backup: file }),
    print: (text) => void printed.push(text),
    now: () => 1_700_000_000_000,
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
  test('are made, listed and revoked', async () => {
    const org = await runJson('admin', 'org', 'create', '--name', 'Acme');
    const orgId = String(org['id']);
    expect(await run('admin', 'org', 'list')).toContain('Acme');
    const scopes = 'instances: read, ssh_keys:write,full_access';
    const key = await runJson('admin', 'key', 'create', '--org', orgId, '--name', 'ci', '--scopes', scopes);
    expect(key['scopes']).toEqual(['instances: read', 'ssh_keys:write', 'full_access']);
    expect(await accounts.authenticate(String(key['key']))).toMatchObject({ orgId });
    const listed = await run('admin', 'key', 'list', '--org', orgId);
    expect(listed).toContain(String(key['prefix']));
    expect(listed).not.toContain(String(key['key']));
    expect(await run('admin', 'key', 'list', '--org', 'nobody')).toBe('none\n');
    await run('admin', 'key', 'revoke', String(key['id']));
    expect(await accounts.authenticate(String(key['key']))).toBeUndefined();
  });
  test('"all" is every scope, and keys may expire', async () => {
    const org = await runJson('admin', 'org', 'create', '--name', 'Acme');
    const common = ['admin', 'key', 'create', '--org', String(org['id']), '--name', 'ci', '--scopes'];
    const key = await runJson(...common, 'all', '--expires-in-days', '2');
    expect(key['scopes']).toContain('supply:write');
    expect(key['expires_at']).toBe(new Date(1_700_000_000_000 + 2 * 86_400_000).toISOString());
    await expect(run(...common, 'all', '--expires-in-days', 'soon')).rejects.toThrow('whole number of days');
    await expect(run(...common, 'instances: fly')).rejects.toThrow('instances: fly');
  });
  test('a refusal is what the command fails with', async () => {
    await expect(run('admin', 'key', 'revoke', 'apk_x')).rejects.toThrow('There is no API key apk_x.');
    await expect(run('admin', 'org', 'create', '--name', '')).rejects.toThrow('at least 1 character');
    await expect(run('admin', 'org', 'create')).rejects.toThrow('--name');
  });
});

describe('balances', () => {
  test.each([
    ['25', 2_500],
    ['25.5', 2_550],
    ['0.01', 1],
    ['999999999999.99', 99_999_999_999_999],
  ])('%s dollars are %d cents', async (usd, cents) => {
    const balance = await runJson('admin', 'balance', 'add', '--org', 'o', '--usd', usd, '--reference', 'r');
    expect(balance).toEqual({ org_id: 'o', cents });
  });
  test.each(['0', '0.00', '-1', '1.005', '1e3', 'ten', ''])('%s dollars are refused', async (usd) => {
    const added = run('admin', 'balance', 'add', '--org', 'o', `--usd=${usd}`, '--reference', 'r');
    await expect(added).rejects.toThrow(/cents must be at least 1|at most two decimals/);
  });
  test('are shown as a table', async () => {
    expect(await run('admin', 'balance', 'show', '--org', 'o')).toBe('org_id  cents\no       0\n');
  });
});

describe('machines, loops, ledger, metrics', () => {
  test('machines are listed, approved and suspended', async () => {
    expect(await run('admin', 'machine', 'list')).toBe('id  status  gpu_type\nm1  listed  -\n');
    expect(await runJson('admin', 'machine', 'approve', 'm1')).toMatchObject({ status: 'listed' });
    expect(await runJson('admin', 'machine', 'unify', 'm1')).toMatchObject({ status: 'listed' });
    expect(await runJson('admin', 'machine', 'suspend', 'm1')).toMatchObject({ status: 'suspended' });
    await expect(run('admin', 'machine', 'approve', 'm2')).rejects.toThrow('There is no machine m2.');
  });
  test('suppliers are listed, suspended and resumed', async () => {
    expect(await run('admin', 'supplier', 'list')).toBe('supplier_id\ns1\n');
    expect(await runJson('admin', 'supplier', 'suspend', 's1')).toMatchObject({ status: 'suspended' });
    expect(await runJson('admin', 'supplier', 'resume', 's1')).toMatchObject({ status: 'active' });
  });
  test('payouts are entered, of an amount or of all that is owed, and listed', async () => {
    const pay = ['admin', 'payout', 'create', '--supplier', 's1', '--reference', 'r/1'];
    const entered = { supplier_id: 's1', reference: 'r/1' };
    expect(await runJson(...pay, '--usd', '12.5')).toEqual({ ...entered, amount_cents: 1_250 });
    expect(await runJson(...pay)).toEqual({ ...entered, amount_cents: null });
    await expect(run(...pay, '--usd', '0')).rejects.toThrow('cents must be at least 1');
    await expect(run(...pay, '--usd', '1.005')).rejects.toThrow('at most two decimals');
    await expect(run(...pay.slice(0, 5))).rejects.toThrow('--reference');
    const named = (length: number): Promise<string> => run(...pay.slice(0, 5), '--reference', 'r'.repeat(length));
    await expect(named(256)).rejects.toThrow('reference must have at most 255 characters');
    expect(await named(255)).toContain('r'.repeat(255));
    expect(await run('admin', 'payout', 'list')).toBe('supplier_id\nall\n');
    expect(await run('admin', 'payout', 'list', '--supplier', 's/1')).toBe('supplier_id\ns/1\n');
  });
  test('disputes are listed, opened and resolved one way or the other', async () => {
    expect(await run('admin', 'dispute', 'list')).toBe('dispute_id\nd1\n');
    const open = ['admin', 'dispute', 'open', '--instance', 'i-1', '--reason', 'no GPU'];
    expect(JSON.parse(String((await runJson(...open))['asked']))).toEqual({
      instanceId: 'i-1',
      sinceMs: null,
      reason: 'no GPU',
    });
    const since = String((await runJson(...open, '--since', '1970-01-02'))['asked']);
    expect(JSON.parse(since)).toMatchObject({ sinceMs: 86_400_000 });
    const resolve = ['admin', 'dispute', 'resolve', 'd/1', '--note', 'seen'];
    expect(await runJson(...resolve, '--refund')).toEqual({ asked: 'd/1 {"refund":true,"note":"seen"}' });
    expect(await runJson(...resolve, '--release')).toEqual({ asked: 'd/1 {"refund":false,"note":"seen"}' });
    await expect(run(...resolve)).rejects.toThrow('say either --release or --refund');
    await expect(run(...resolve, '--release', '--refund')).rejects.toThrow('say either --release or --refund');
  });
  test('credits that wait are listed, released and refused with a note; a flagged tenant is trusted again', async () => {
    expect(await run('admin', 'credit', 'list')).toBe('credit_id\nc1\n');
    expect(await run('admin', 'credit', 'flags')).toBe('org_id\no1\n');
    for (const verb of ['release', 'refuse', 'trust']) {
      expect(await runJson('admin', 'credit', verb, 'a/b', '--note', 'seen')).toEqual({ asked: `${verb} a/b seen` });
      await expect(run('admin', 'credit', verb, 'a/b')).rejects.toThrow('--note');
    }
  });
  test('instances are listed by what is asked for, shown, explained, and ended for a reason', async () => {
    const listed = async (...words: string[]): Promise<unknown> => {
      const { data } = (await runJson('admin', 'instance', 'list', ...words)) as { data: { asked: string }[] };
      return JSON.parse(data[0]?.asked ?? '');
    };
    expect(await listed()).toEqual({ orgId: null, machineId: null, status: null, limit: 100 });
    const all = ['--org', 'o', '--machine', 'm', '--status', 'any', '--limit', '5'];
    expect(await listed(...all)).toEqual({ orgId: 'o', machineId: 'm', status: 'any', limit: 5 });
    await expect(run('admin', 'instance', 'list', '--status', 'odd')).rejects.toThrow('status');
    expect(await runJson('admin', 'instance', 'show', 'i-1')).toEqual({ asked: 'show i-1' });
    expect(await run('admin', 'instance', 'why', 'i/1')).toBe('asked\nwhy i/1\n');
    expect(await runJson('admin', 'instance', 'end', 'i-1', '--reason', 'abuse')).toEqual({ asked: 'end i-1 abuse' });
    await expect(run('admin', 'instance', 'end', 'i-1')).rejects.toThrow('--reason');
  });
  test('an unknown workload is removed, a file is backed up', async () => {
    const removed = { machine_id: 'm1', workload_id: 'w-1' };
    expect(await runJson('admin', 'machine', 'remove-unknown', 'm1', 'w-1')).toEqual(removed);
    await expect(run('admin', 'machine', 'remove-unknown', 'm1', '../x')).rejects.toThrow('workload_id');
    expect(await run('admin', 'backup', 'here.db')).toBe('backup\nhere.db\n');
  });
  test('what was done is in the audit journal', async () => {
    await run('admin', 'machine', 'suspend', 'm1');
    const { data } = await runJson('admin', 'audit', 'list', '--since', '2020-01-01', '--limit', '1');
    expect(data).toMatchObject([{ operation: 'adminSuspendMachine', subject: 'm1', outcome: 'ok' }]);
    expect(await run('admin', 'audit', 'list', '--since', '2999-01-01')).toBe('none\n');
    await expect(run('admin', 'audit', 'list', '--limit', '1001')).rejects.toThrow('limit');
    await expect(run('admin', 'audit', 'list', '--since', 'soon')).rejects.toThrow('since');
  });
  test('loops are visible', async () => {
    expect(await run('admin', 'loops')).toMatch(/^name .*\nengine .* 1970-01-01T00:00:00.000Z +-\n$/);
  });
  test('the ledger is verified, and faults fail the command', async () => {
    expect(await run('ledger', 'verify')).toBe('ledger verify: OK\n');
    faults = ['debits 1 differ from credits 2'];
    await expect(run('ledger', 'verify')).rejects.toThrow('1 faults');
  });
  test('metrics are text', async () => {
    const answer = await askDaemon(socketPath, { method: 'GET', url: '/metrics' });
    expect(answer?.body).toContain('http_request_duration_seconds');
  });
});

describe('reservations', () => {
  const reservation = async (...words: string[]): Promise<unknown> =>
    (await runJson('admin', 'reservation', ...words))['asked'];
  const CREATE = ['create', '--org', 'o', '--title', 'Training', '--starts', '2026-12-01'];

  test('are made of a term and GPUs by type and region', async () => {
    const term = ['--ends', '2027-03-01T12:00:00+02:00', '--renewal', 'auto_renew'];
    const gpus = ['--gpus', 'H100_SXM:8@eu-west', '--gpus', 'A100_SXM_80GB:2@us-east'];
    expect(await reservation(...CREATE, ...term, ...gpus)).toBe(
      `create ${JSON.stringify({
        org_id: 'o',
        title: 'Training',
        starts_at: '2026-12-01T00:00:00Z',
        ends_at: '2027-03-01T12:00:00+02:00',
        renewal: 'auto_renew',
        commitment: [
          { gpu_type: 'H100_SXM', gpu_count: 8, region: 'eu-west' },
          { gpu_type: 'A100_SXM_80GB', gpu_count: 2, region: 'us-east' },
        ],
      })}`,
    );
  });
  test('are refused with what is wrong', async () => {
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
    expect(await run('admin', 'reservation', 'list')).toBe('asked\nlist\n');
    for (const verb of ['show', 'suspend', 'resume', 'cancel', 'reassign']) {
      expect(await reservation(verb, '01J/X')).toBe(`${verb} 01J/X`);
    }
    expect(await reservation('extend', '01JX', '--ends', '2027-06-01')).toBe('extend 01JX 2027-06-01T00:00:00.000Z');
  });
});

test('a socket without a daemon is told from a daemon that refuses', async () => {
  expect(await askDaemon(join(directory, 'nobody.sock'), { method: 'GET', url: '/healthz' })).toBeUndefined();
  expect(await askDaemon(socketPath, { method: 'GET', url: '/nothing' })).toMatchObject({ status: 404 });
});

test('a table shows lists, the beginning of nested values, and gaps', () => {
  const rows = [
    { a: ['x', 'y', 'z'], b: null },
    { a: '', b: { c: 1 } },
    { a: ['x', 'y', 'z', 'u', 'v'], b: { c: 'd'.repeat(200) } },
  ];
  const cut = `{"c":"${'d'.repeat(94)}...`;
  expect(tableOf(rows)).toBe(
    `a                   b\nx, y, z             -\n-                   {"c":1}\nx, y, z and 2 more  ${cut}\n`,
  );
});

test('every command and every option says what it is', () => {
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

test('a failure of ours names the request, under which the log tells more', async () => {
  const program = new Command();
  const problem = { code: 'internal_error', detail: 'Something went wrong.', request_id: 'req_1' };
  const ask = async () => ({ status: 500, body: JSON.stringify(problem) });
  addOperatorCommands(program, { ask, backup: async () => ({}), print: () => undefined, now: () => 0 });
  await expect(program.parseAsync(['admin', 'loops'], { from: 'user' })).rejects.toThrow(
    'Something went wrong. (req_1)',
  );
});
