// `admin credit ...`: credits above the daily bounds, and organisations whose credits wait.
import type { Command } from 'commander';
import { type CommandDeps, type CommonOptions, show, withCommon } from './command.ts';
import { CREDIT_VERBS } from '../money/credits/operator-routes.ts';

interface NoteOptions extends CommonOptions {
  note: string;
}

export function addCreditCommands(admin: Command, deps: CommandDeps): void {
  const credit = admin.command('credit').description('credits and payments that wait for the operator');
  const list = (name: string, url: string, meaning: string): void => {
    withCommon(credit.command(name).description(meaning)).action((options: CommonOptions) =>
      show(deps, options, { method: 'GET', url }),
    );
  };
  const decide = (words: string, urlOf: (id: string) => string, meaning: string): void => {
    const command = credit.command(words).description(meaning).requiredOption('--note <text>', 'why, for the audit');
    withCommon(command).action((id: string, { note, ...options }: NoteOptions) =>
      show(deps, options, { method: 'POST', url: urlOf(encodeURIComponent(id)), payload: { note } }),
    );
  };
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
