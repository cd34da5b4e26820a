// `admin instance ...`: rentals of all organisations, and the evidence for their bills.
import type { Command } from 'commander';
import { type CommandDeps, type CommonOptions, show, withCommon } from './command.ts';

interface ListOptions extends CommonOptions {
  org?: string;
  machine?: string;
  status?: string;
  limit: string;
}

export function addInstanceCommands(admin: Command, deps: CommandDeps): void {
  const instance = admin.command('instance').description('rentals of all organisations');
  withCommon(
    instance
      .command('list')
      .description('list instances that have not ended, newest first')
      .option('--org <id>', 'only those of this organisation')
      .option('--machine <id>', 'only those on this machine')
      .option('--status <status>', 'only those with this status; `any` includes ended ones')
      .option('--limit <count>', 'at most this many', '100'),
  ).action(({ org, machine, status, limit, ...options }: ListOptions) => {
    const query = new URLSearchParams({ limit });
    if (org !== undefined) query.set('org_id', org);
    if (machine !== undefined) query.set('machine_id', machine);
    if (status !== undefined) query.set('status', status);
    return show(deps, options, { method: 'GET', url: `/admin/instances?${query.toString()}` });
  });
  const urlOf = (id: string): string => `/admin/instances/${encodeURIComponent(id)}`;
  withCommon(instance.command('show <id>').description('one of them')).action((id: string, options: CommonOptions) =>
    show(deps, options, { method: 'GET', url: urlOf(id) }),
  );
  withCommon(
    instance
      .command('why <id>')
      .description(
        'show what decided its bill: events, probes, charged and uncharged time, credits, with their evidence',
      ),
  ).action((id: string, options: CommonOptions) => show(deps, options, { method: 'GET', url: `${urlOf(id)}/why` }));
  withCommon(
    instance
      .command('end <id>')
      .description('end it now; its cost until now stays charged')
      .requiredOption('--reason <text>', 'the reason, which its customer reads'),
  ).action((id: string, { reason, ...options }: CommonOptions & { reason: string }) =>
    show(deps, options, { method: 'POST', url: `${urlOf(id)}/end`, payload: { reason } }),
  );
}
