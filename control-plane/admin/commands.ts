// The operator's commands. Each sends one request to the daemon and prints its answer.
import { type Command, InvalidArgumentError } from 'commander';
import { z } from 'zod';
import { isoTime } from '../../shared/clock.ts';
import { SCOPES } from '../base/http/scopes.ts';
import {
  askOrThrow,
  type CommandDeps,
  type CommonOptions,
  jsonLine,
  type ListOptions,
  printAnswer,
  readCents,
  show,
  showPage,
  showParts,
  withCommon,
  type SearchOptions,
  withPages,
  withSearch,
  readTime,
} from './command.ts';
import { addAdjustCommand, addExportCommand, addRefundCommand, addStatementCommand } from './correction-commands.ts';
import { addDepositCommands } from './deposit-commands.ts';
import { addCreditCommands, addDisputeCommands, addPayoutCommands, addSupplierCommands } from './money-commands.ts';
import { addModelCommands } from './model-commands.ts';
import { addOutageCommands, addInstanceCommands, addReservationCommands } from './rental-commands.ts';
import { addOverviewCommand } from './overview-command.ts';
import { addPauseCommands } from './pause-commands.ts';
import { addMemberCommands, addSuspensionCommands, addUserCommands, addWebhookCommands } from './people-commands.ts';

const DAY_MS = 86_400_000;
const Verdict = z.strictObject({ ok: z.boolean(), faults: z.array(z.string()) });

/** Adds `admin ...` and `ledger verify` to the program. If the daemon refuses a request, the detail is thrown. */
export function addOperatorCommands(program: Command, deps: CommandDeps): void {
  const admin = program.command('admin').description('operator commands, sent to the daemon over its unix socket');
  addOverviewCommand(admin, deps);
  addPauseCommands(admin, deps);
  addOrgCommands(admin, deps);
  addKeyCommands(admin, deps);
  addUserCommands(admin, deps);
  addBalanceCommands(admin, deps);
  addMachineCommands(admin, deps);
  addSupplierCommands(admin, deps);
  addPayoutCommands(admin, deps);
  addInstanceCommands(admin, deps);
  addOutageCommands(admin, deps);
  addModelCommands(admin, deps);
  addDisputeCommands(admin, deps);
  addCreditCommands(admin, deps);
  addReservationCommands(admin, deps);
  addDepositCommands(admin, deps);
  addWebhookCommands(admin, deps);
  addRefundCommand(admin, deps);
  addAdjustCommand(admin, deps);
  addStatementCommand(admin, deps);
  addExportCommand(admin, deps);
  addAuditCommands(admin, deps);
  addUrlKeyCommands(admin, deps);
  withCommon(admin.command('loops').description('the background loops of the daemon')).action(
    (options: CommonOptions) => show(deps, options, { method: 'GET', url: '/admin/loops' }),
  );
  withCommon(
    admin
      .command('reload')
      .description(
        'reload models, templates, environments, limits and sign-up; if one file has a mistake, nothing changes',
      ),
  ).action((options: CommonOptions) => show(deps, options, { method: 'POST', url: '/admin/reload' }));
  withCommon(
    admin
      .command('backup <file>')
      .description(
        'write a snapshot of the SQLite database to a new file; the daemon goes on. Keep secret_file beside it',
      ),
  ).action(async (file: string, options: CommonOptions) =>
    printAnswer(deps, options, await deps.backup(options.config, file)),
  );
  const ledger = program.command('ledger').description('the books');
  withCommon(
    ledger.command('show').description('what the last proof has found, and when the books were last proven'),
  ).action((options: CommonOptions) => show(deps, options, { method: 'GET', url: '/admin/ledger' }));
  withCommon(ledger.command('verify').description('prove that the books agree; exit code 1 if they do not')).action(
    (options: CommonOptions) => verifyLedger(deps, options),
  );
}

interface AuditOptions extends ListOptions {
  since?: string;
  actor?: string;
  operation?: string;
  subject?: string;
}

function addAuditCommands(admin: Command, deps: CommandDeps): void {
  const list = admin
    .command('audit')
    .description('what operators did')
    .command('list')
    .description('newest first')
    .option('--since <time>', 'a day, or a time like 2026-12-01T09:30:00Z', readTime)
    .option('--actor <name>', 'only what this operator did')
    .option('--operation <operation>', 'only this operation, like adminSuspendOrg')
    .option('--subject <id>', 'only what was done to this organisation, machine, instance or other thing');
  withPages(list).action(({ since, actor, operation, subject, ...options }: AuditOptions) =>
    showPage(deps, options, '/admin/audit', { since, actor, operation, subject }),
  );
}

function addUrlKeyCommands(admin: Command, deps: CommandDeps): void {
  const urlKey = admin.command('url-key').description('keys that sign presigned URLs of the local disk');
  withCommon(urlKey.command('list').description('all of them, newest first')).action((options: CommonOptions) =>
    show(deps, options, { method: 'GET', url: '/admin/url-keys' }),
  );
  withCommon(
    urlKey
      .command('rotate')
      .description('sign with a new key from now on; URLs of the old ones stay valid until they expire')
      .option('--revoke', 'end all URLs that were signed before, at once'),
  ).action(({ revoke = false, ...options }: CommonOptions & { revoke?: boolean }) =>
    show(deps, options, { method: 'POST', url: '/admin/url-keys/rotate', payload: { revoke } }),
  );
}

function addOrgCommands(admin: Command, deps: CommandDeps): void {
  const org = admin.command('org').description('organisations');
  withCommon(
    org
      .command('create')
      .description('create an organisation; other commands need its id')
      .requiredOption('--name <name>', 'for people'),
  ).action((options: CommonOptions & { name: string }) =>
    show(deps, options, { method: 'POST', url: '/admin/orgs', payload: { name: options.name } }),
  );
  withSearch(org.command('list').description('all organisations, newest first'), 'their name or id').action(
    ({ search, ...options }: SearchOptions) => showPage(deps, options, '/admin/orgs', { search }),
  );
  withCommon(org.command('show <id>').description('one of them')).action((id: string, options: CommonOptions) =>
    show(deps, options, { method: 'GET', url: `/admin/orgs/${encodeURIComponent(id)}` }),
  );
  addMemberCommands(org, deps);
  addSuspensionCommands(org, deps);
}

interface KeyOptions extends CommonOptions {
  org: string;
  name: string;
  scopes: string;
  expiresInDays?: number;
}

function addKeyCommands(admin: Command, deps: CommandDeps): void {
  const key = admin.command('key').description('API keys');
  const create = key
    .command('create')
    .description('create an API key; it is shown only once')
    .requiredOption('--org <id>', 'the organisation of the key')
    .requiredOption('--name <name>', 'for people')
    .requiredOption('--scopes <list>', 'comma-separated scopes, full_access, or all')
    .option('--expires-in-days <days>', 'without it the key does not expire', readDays)
    .addHelpText('after', `\nScopes:\n${scopesHelp()}`);
  withCommon(create).action((options: KeyOptions) => {
    const scopes =
      options.scopes.trim() === 'all' ? Object.keys(SCOPES) : options.scopes.split(',').map((s) => s.trim());
    const days = options.expiresInDays;
    const expiry = days === undefined ? {} : { expires_at: isoTime(deps.now() + days * DAY_MS) };
    const payload = { org_id: options.org, name: options.name, scopes, ...expiry };
    return show(deps, options, { method: 'POST', url: '/admin/keys', payload });
  });
  withPages(
    key
      .command('list')
      .description('API keys without their secret, newest first')
      .option('--org <id>', 'only those of this organisation'),
  ).action(({ org, ...options }: ListOptions & { org?: string }) =>
    showPage(deps, options, '/admin/keys', { org_id: org }),
  );
  withCommon(key.command('revoke <id>').description('end an API key for good, at once')).action(
    (id: string, options: CommonOptions) =>
      show(deps, options, { method: 'POST', url: `/admin/keys/${encodeURIComponent(id)}/revoke` }),
  );
}

interface CreditOptions extends CommonOptions {
  org: string;
  usd: number;
  reference: string;
}

function addBalanceCommands(admin: Command, deps: CommandDeps): void {
  const balance = admin.command('balance').description('prepaid balances');
  const add = balance
    .command('add')
    .description('add to a balance')
    .requiredOption('--org <id>', 'the organisation')
    .requiredOption('--usd <amount>', 'dollars, like 25 or 25.50', readCents)
    .requiredOption(
      '--reference <text>',
      'the reason, e.g. a payment id; a second addition with the same reference has no effect',
    );
  withCommon(add).action((options: CreditOptions) =>
    show(deps, options, {
      method: 'POST',
      url: `/admin/balances/${encodeURIComponent(options.org)}/credits`,
      payload: { cents: options.usd, reference: options.reference },
    }),
  );
  withCommon(
    balance
      .command('warn')
      .description('set when the customers of an organisation are warned that the balance ends')
      .requiredOption('--org <id>', 'the organisation')
      .requiredOption(
        '--below-hours <list>',
        'hours left at the present rate, like 48,12,2, or never; usually 24,6,1',
        readHours,
      ),
  ).action(({ org, belowHours, ...options }: CommonOptions & { org: string; belowHours: number[] }) =>
    show(deps, options, {
      method: 'POST',
      url: `/admin/balances/${encodeURIComponent(org)}/warnings`,
      payload: { below_hours: belowHours },
    }),
  );
  withCommon(
    balance
      .command('show')
      .description('show the balance, the held part and the available part')
      .requiredOption('--org <id>', 'the organisation'),
  ).action((options: CommonOptions & { org: string }) =>
    show(deps, options, { method: 'GET', url: `/admin/balances/${encodeURIComponent(options.org)}` }),
  );
}

function readHours(text: string): number[] {
  if (text === 'never') return [];
  if (!/^\d{1,3}(,\d{1,3})*$/.test(text)) throw new InvalidArgumentError('must be whole hours like 48,12,2, or never');
  return text.split(',').map(Number);
}

const MACHINE_VERBS = {
  approve: 'put its GPUs on offer, also after a suspension',
  suspend: 'take its GPUs off the market; running rentals go on',
  trust: 'place replicas of models and training on it',
  distrust: 'place no replicas and no training on it any more; what runs goes on',
  unify: 'confirm that only one host has its identity again, after a copy of its disk was in use',
};

function addMachineCommands(admin: Command, deps: CommandDeps): void {
  const machine = admin.command('machine').description("suppliers' machines");
  withSearch(
    machine
      .command('list')
      .description('all machines, newest first: their state, their GPUs, and what is wrong with them'),
    'their name, their id or the id of their supplier',
  ).action(({ search, ...options }: SearchOptions) => showPage(deps, options, '/admin/machines', { search }));
  withCommon(
    machine.command('show <id>').description('one of them: its checks, GPUs, rentals, outages and events'),
  ).action((id: string, options: CommonOptions) =>
    showParts(deps, options, { method: 'GET', url: `/admin/machines/${encodeURIComponent(id)}` }),
  );
  withCommon(
    machine.command('metrics <id>').description('the newest figures of its GPUs; --json: also those of the last hour'),
  ).action((id: string, options: CommonOptions) => showMachineMetrics(deps, options, id));
  for (const [verb, meaning] of Object.entries(MACHINE_VERBS)) {
    withCommon(machine.command(`${verb} <id>`).description(meaning)).action((id: string, options: CommonOptions) =>
      show(deps, options, { method: 'POST', url: `/admin/machines/${encodeURIComponent(id)}/${verb}` }),
    );
  }
  withCommon(
    machine
      .command('remove-unknown <id> <workload>')
      .description(
        'remove a container that the machine runs but the database, restored from an older backup, does not know',
      ),
  ).action((id: string, workload: string, options: CommonOptions) =>
    show(deps, options, {
      method: 'DELETE',
      url: `/admin/machines/${encodeURIComponent(id)}/unknown-workloads/${encodeURIComponent(workload)}`,
    }),
  );
  withCommon(
    machine
      .command('lost <id>')
      .description(
        'declare that its host is lost for good, with what it ran: its key ends, and its GPUs can be offered again by a new host',
      )
      .requiredOption('--reason <text>', 'the reason, which the audit journal keeps'),
  ).action((id: string, { reason, ...options }: CommonOptions & { reason: string }) =>
    show(deps, options, { method: 'POST', url: `/admin/machines/${encodeURIComponent(id)}/lost`, payload: { reason } }),
  );
}

/** The members of the answer that are printed for people. */
const Latest = z.object({ latest: z.object({ gpus: z.array(z.record(z.string(), z.unknown())) }).nullable() });

async function showMachineMetrics(deps: CommandDeps, options: CommonOptions, id: string): Promise<void> {
  const url = `/admin/machines/${encodeURIComponent(id)}/metrics`;
  const answer = await askOrThrow(deps, options, { method: 'GET', url });
  printAnswer(deps, options, options.json === true ? answer : { data: Latest.parse(answer).latest?.gpus ?? [] });
}

async function verifyLedger(deps: CommandDeps, options: CommonOptions): Promise<void> {
  const verdict = Verdict.parse(await askOrThrow(deps, options, { method: 'POST', url: '/admin/ledger/verify' }));
  const text = verdict.ok ? 'ledger verify: OK' : verdict.faults.join('\n');
  deps.print(options.json === true ? jsonLine(verdict) : `${text}\n`);
  if (!verdict.ok) throw new Error(`the books do not agree: ${verdict.faults.length} faults`);
}

function readDays(text: string): number {
  if (!/^[1-9]\d{0,4}$/.test(text)) throw new InvalidArgumentError('must be a whole number of days, from 1 to 99999');
  return Number(text);
}

function scopesHelp(): string {
  return Object.entries(SCOPES)
    .map(([scope, meaning]) => `  ${scope.padEnd(28)}${meaning}`)
    .join('\n');
}
