// The operator's commands about outages: list them, and show one with the rentals that it has stopped.
import type { Command } from 'commander';
import {
  type CommandDeps,
  type CommonOptions,
  type ListOptions,
  showPage,
  showParts,
  withCommon,
  withPages,
} from './command.ts';

interface OutageOptions extends ListOptions {
  open?: boolean;
  machine?: string;
}

export function addOutageCommands(admin: Command, deps: CommandDeps): void {
  const outage = admin.command('outage').description('outages of hosts and of our own');
  withPages(
    outage
      .command('list')
      .description('all of them, newest first: what stopped how many rentals, how long, and what that gave')
      .option('--open', 'only those that last')
      .option('--machine <id>', 'only those of this machine'),
  ).action(({ open = false, machine, ...options }: OutageOptions) =>
    showPage(deps, options, '/admin/outages', { open: open ? 'true' : undefined, machine_id: machine }),
  );
  withCommon(outage.command('show <id>').description('one of them, with its rentals and their credits')).action(
    (id: string, options: CommonOptions) =>
      showParts(deps, options, { method: 'GET', url: `/admin/outages/${encodeURIComponent(id)}` }),
  );
}
