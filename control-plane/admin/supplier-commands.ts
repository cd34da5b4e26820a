// `admin supplier ...` and `admin payout ...`: suppliers and their payouts.
import type { Command } from 'commander';
import { type CommandDeps, type CommonOptions, readCents, show, withCommon } from './command.ts';
import { SUPPLIER_VERBS } from '../fleet/supply/operator-routes.ts';

export function addSupplierCommands(admin: Command, deps: CommandDeps): void {
  const supplier = admin.command('supplier').description('organisations that supply machines');
  withCommon(supplier.command('list').description('all suppliers, and what they are owed')).action(
    (options: CommonOptions) => show(deps, options, { method: 'GET', url: '/admin/suppliers' }),
  );
  for (const [verb, meaning] of Object.entries(SUPPLIER_VERBS)) {
    withCommon(supplier.command(`${verb} <id>`).description(meaning)).action((id: string, options: CommonOptions) =>
      show(deps, options, { method: 'POST', url: `/admin/suppliers/${encodeURIComponent(id)}/${verb}` }),
    );
  }
}

interface PayoutOptions extends CommonOptions {
  supplier: string;
  usd?: number;
  reference: string;
}

export function addPayoutCommands(admin: Command, deps: CommandDeps): void {
  const payout = admin.command('payout').description('what suppliers were paid');
  const create = payout
    .command('create')
    .description('record that a supplier was paid; this moves no money')
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
  withCommon(
    payout
      .command('list')
      .description('the latest payouts, newest first')
      .option('--supplier <id>', 'only those of this supplier'),
  ).action((options: CommonOptions & { supplier?: string }) => {
    const query = options.supplier === undefined ? '' : `?supplier_id=${encodeURIComponent(options.supplier)}`;
    return show(deps, options, { method: 'GET', url: `/admin/payouts${query}` });
  });
}
