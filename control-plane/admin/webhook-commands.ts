// `admin webhook ...`: endpoints of customers whose deliveries fail.
import type { Command } from 'commander';
import {
  type CommandDeps,
  type CommonOptions,
  type ListOptions,
  readTime,
  show,
  showPage,
  withCommon,
  withPages,
} from './command.ts';

const BASE = '/admin/webhook-endpoints';

export function addWebhookCommands(admin: Command, deps: CommandDeps): void {
  const webhook = admin.command('webhook').description("customers' webhook endpoints");
  withPages(
    webhook.command('list').description('those with deliveries that were given up or are overdue, newest first'),
  ).action((options: ListOptions) => showPage(deps, options, BASE));
  withCommon(
    webhook
      .command('replay <id>')
      .description('give all deliveries of an endpoint that were given up a new schedule')
      .requiredOption('--since <time>', 'only those that were made since then: a day, or a time', readTime)
      .requiredOption('--reason <text>', 'why, for the audit'),
  ).action((id: string, { since, reason, ...options }: CommonOptions & { since: string; reason: string }) =>
    show(deps, options, {
      method: 'POST',
      url: `${BASE}/${encodeURIComponent(id)}/replay`,
      payload: { since, reason },
    }),
  );
}
