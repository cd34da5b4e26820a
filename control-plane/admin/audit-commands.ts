// The operator's command for the audit journal.
import type { Command } from 'commander';
import { type CommandDeps, type CommonOptions, readTime, show, withCommon } from './command.ts';

interface AuditOptions extends CommonOptions {
  since?: string;
  limit: string;
}

export function addAuditCommands(admin: Command, deps: CommandDeps): void {
  const list = admin
    .command('audit')
    .description('what operators did')
    .command('list')
    .description('newest first')
    .option('--since <time>', 'a day, or a time like 2026-12-01T09:30:00Z', readTime)
    .option('--limit <count>', 'at most this many', '100');
  withCommon(list).action(({ since, limit, ...options }: AuditOptions) => {
    const query = new URLSearchParams({ limit });
    if (since !== undefined) query.set('since', since);
    return show(deps, options, { method: 'GET', url: `/admin/audit?${query.toString()}` });
  });
}
