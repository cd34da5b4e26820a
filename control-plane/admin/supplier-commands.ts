// `admin supplier ...`: those who bring machines.
import type { Command } from 'commander';
import { type CommandDeps, type CommonOptions, show, withCommon } from './command.ts';
import { SUPPLIER_VERBS } from './supplier-routes.ts';

export function addSupplierCommands(admin: Command, deps: CommandDeps): void {
  const supplier = admin.command('supplier').description('organisations that bring machines');
  withCommon(supplier.command('list').description('all suppliers, and what they are owed')).action(
    (options: CommonOptions) => show(deps, options, { method: 'GET', url: '/admin/suppliers' }),
  );
  for (const [verb, meaning] of Object.entries(SUPPLIER_VERBS)) {
    withCommon(supplier.command(`${verb} <id>`).description(meaning)).action((id: string, options: CommonOptions) =>
      show(deps, options, { method: 'POST', url: `/admin/suppliers/${encodeURIComponent(id)}/${verb}` }),
    );
  }
}
