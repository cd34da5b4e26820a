// `admin dispute ...`: a customer claims that a rental was not what they paid for.
import type { Command } from 'commander';
import { type CommandDeps, type CommonOptions, readTime, show, withCommon } from './command.ts';

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
  withCommon(dispute.command('list').description('all disputes, newest first')).action((options: CommonOptions) =>
    show(deps, options, { method: 'GET', url: '/admin/disputes' }),
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
