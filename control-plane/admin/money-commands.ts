// `admin supplier ...` and `admin payout ...`: suppliers and their payouts. `admin credit ...`: credits above the daily bounds, and organisations
// whose credits wait. `admin dispute ...`: a customer claims that a rental was not what they paid for.
import type { Command } from 'commander';
import {
  type CommandDeps,
  type CommonOptions,
  type ListOptions,
  show,
  showPage,
  withCommon,
  withPages,
  readTime,
  readCents,
} from './command.ts';
import { addGrantCommand } from './correction-commands.ts';
import { CREDIT_VERBS } from '../money/credits/operator-routes.ts';
import { SUPPLIER_VERBS } from '../fleet/supply/operator-routes.ts';

export function addSupplierCommands(admin: Command, deps: CommandDeps): void {
  const supplier = admin.command('supplier').description('organisations that supply machines');
  withPages(supplier.command('list').description('all suppliers, newest first, and what they are owed')).action(
    (options: ListOptions) => showPage(deps, options, '/admin/suppliers'),
  );
  for (const [verb, meaning] of Object.entries(SUPPLIER_VERBS)) {
    withCommon(supplier.command(`${verb} <id>`).description(meaning)).action((id: string, options: CommonOptions) =>
      show(deps, options, { method: 'POST', url: `/admin/suppliers/${encodeURIComponent(id)}/${verb}` }),
    );
  }
}

interface ExportOptions extends CommonOptions {
  batch: string;
}

interface PayoutOptions extends CommonOptions {
  supplier: string;
  usd?: number;
  reference: string;
}

export function addPayoutCommands(admin: Command, deps: CommandDeps): void {
  const payout = admin
    .command('payout')
    .description('payouts to suppliers: they become due by themselves, you send them and say with which transaction');
  const create = payout
    .command('create')
    .description('record that a supplier was paid in another way; this moves no money')
    .requiredOption('--supplier <id>', 'who was paid')
    .requiredOption(
      '--reference <text>',
      'the name of the payment elsewhere, e.g. a bank transfer; a second payout with the same reference has no effect',
    )
    .option('--usd <amount>', 'dollars, like 25 or 25.50; without it all that is owed', readCents);
  withCommon(create).action(({ supplier, usd, reference, ...options }: PayoutOptions) =>
    show(deps, options, {
      method: 'POST',
      url: `/admin/suppliers/${encodeURIComponent(supplier)}/payouts`,
      payload: { reference, ...(usd === undefined ? {} : { cents: usd }) },
    }),
  );
  withPages(
    payout
      .command('list')
      .description('all payouts, newest first')
      .option('--supplier <id>', 'only those of this supplier')
      .option('--state <state>', 'only those that are due, in_flight, paid or failed'),
  ).action(({ supplier, state, ...options }: ListOptions & { supplier?: string; state?: string }) =>
    showPage(deps, options, '/admin/payouts', { supplier_id: supplier, state }),
  );
  const exported = payout
    .command('export')
    .description('take what is due in flight, and list chain, address and amount of each payout, to be sent by you')
    .requiredOption(
      '--batch <name>',
      'your name for the list, e.g. the day; the same name again gives the same payouts',
    );
  withCommon(exported).action(({ batch, ...options }: ExportOptions) =>
    show(deps, options, { method: 'POST', url: '/admin/payouts/export', payload: { batch } }),
  );
  const record = (words: string, meaning: string, [option, field, about]: readonly [string, string, string]): void => {
    const command = payout.command(`${words} <id>`).description(meaning).requiredOption(option, about);
    withCommon(command).action((id: string, { [field]: text, ...options }: CommonOptions & Record<string, unknown>) =>
      show(deps, options, {
        method: 'POST',
        url: `/admin/payouts/${encodeURIComponent(id)}/${words}`,
        payload: { [field]: text },
      }),
    );
  };
  record('sent', 'a payout has left', ['--reference <text>', 'reference', 'the transaction on its chain']);
  record('failed', 'a payout has not left and will not: the money is owed again', [
    '--reason <text>',
    'reason',
    'why; the supplier reads it',
  ]);
}

interface NoteOptions extends CommonOptions {
  note: string;
}

export function addCreditCommands(admin: Command, deps: CommandDeps): void {
  const credit = admin
    .command('credit')
    .description('credits: those that wait for the operator, and those that the operator gives');
  const list = (name: string, path: string, meaning: string): void => {
    withPages(credit.command(name).description(meaning)).action((options: ListOptions) =>
      showPage(deps, options, path),
    );
  };
  const decide = (words: string, urlOf: (id: string) => string, meaning: string): void => {
    const command = credit.command(words).description(meaning).requiredOption('--note <text>', 'why, for the audit');
    withCommon(command).action((id: string, { note, ...options }: NoteOptions) =>
      show(deps, options, { method: 'POST', url: urlOf(encodeURIComponent(id)), payload: { note } }),
    );
  };
  addGrantCommand(credit, deps);
  list('list', '/admin/credits', 'what waits, and the latest decisions');
  for (const [verb, meaning] of Object.entries(CREDIT_VERBS)) {
    decide(`${verb} <id>`, (id) => `/admin/credits/${id}/${verb}`, meaning);
  }
  list(
    'flags',
    '/admin/credit-flags',
    'organisations that fail on machines that serve others well: credits for their outages wait',
  );
  decide(
    'trust <org>',
    (id) => `/admin/credit-flags/${id}/trust`,
    'remove the flag of an organisation; its outages until now no longer count',
  );
}

interface OpenOptions extends CommonOptions {
  instance: string;
  since?: string;
  reason: string;
}

interface ResolveOptions extends CommonOptions {
  refund?: boolean;
  release?: boolean;
  note: string;
}

export function addDisputeCommands(admin: Command, deps: CommandDeps): void {
  const dispute = admin.command('dispute').description('rentals whose earnings wait for a decision');
  withPages(dispute.command('list').description('all disputes, newest first')).action((options: ListOptions) =>
    showPage(deps, options, '/admin/disputes'),
  );
  withCommon(
    dispute
      .command('open')
      .description('keep what a rental earned from being paid out until the dispute is resolved')
      .requiredOption('--instance <id>', 'the rental')
      .requiredOption('--reason <text>', 'the complaint of the customer')
      .option('--since <time>', 'a day, or a time like 2026-12-01T09:30:00Z; without it the whole rental', readTime),
  ).action(({ instance, since, reason, ...options }: OpenOptions) =>
    show(deps, options, {
      method: 'POST',
      url: '/admin/disputes',
      payload: { instance_id: instance, reason, ...(since === undefined ? {} : { since }) },
    }),
  );
  withCommon(
    dispute
      .command('resolve <id>')
      .description(
        'end a dispute: --release lets the supplier have its earnings, --refund gives the customer the disputed time back',
      )
      .option('--release', 'the supplier keeps its earnings')
      .option('--refund', 'the disputed time is taken back from supplier and platform, and paid back to the customer')
      .requiredOption('--note <text>', 'why, for the audit'),
  ).action((id: string, { refund = false, release = false, note, ...options }: ResolveOptions, command: Command) => {
    if (refund === release) return command.error('error: use either --release or --refund');
    return show(deps, options, {
      method: 'POST',
      url: `/admin/disputes/${encodeURIComponent(id)}/resolve`,
      payload: { refund, note },
    });
  });
}
