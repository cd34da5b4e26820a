// `admin org suspend`, `resume`, `members` and `add-member`, and `admin user ...`: organisations that may spend nothing, and the people who sign in.
// `admin webhook ...`: endpoints of customers whose deliveries fail.
import type { Command } from 'commander';
import {
  type CommandDeps,
  type CommonOptions,
  type ListOptions,
  show,
  showPage,
  withCommon,
  type SearchOptions,
  withPages,
  withSearch,
  readTime,
} from './command.ts';

export function addSuspensionCommands(org: Command, deps: CommandDeps): void {
  const urlOf = (id: string): string => `/admin/orgs/${encodeURIComponent(id)}`;
  withCommon(
    org
      .command('suspend <id>')
      .description('refuse everything that costs money; it can still sign in, read, export and delete')
      .requiredOption('--reason <text>', 'why, for the audit and the journal of the organisation'),
  ).action((id: string, { reason, ...options }: CommonOptions & { reason: string }) =>
    show(deps, options, { method: 'POST', url: `${urlOf(id)}/suspend`, payload: { reason } }),
  );
  withCommon(org.command('resume <id>').description('end the suspension')).action(
    (id: string, options: CommonOptions) => show(deps, options, { method: 'POST', url: `${urlOf(id)}/resume` }),
  );
}

export function addMemberCommands(org: Command, deps: CommandDeps): void {
  const urlOf = (id: string): string => `/admin/orgs/${encodeURIComponent(id)}/members`;
  withPages(org.command('members <id>').description('its members and their roles, newest first')).action(
    (id: string, options: ListOptions) => showPage(deps, options, urlOf(id)),
  );
  withCommon(
    org
      .command('add-member <id>')
      .description('make somebody who has an account a member; `user add` makes an account')
      .requiredOption('--user <user>', 'id or e-mail address')
      .requiredOption('--role <role>', 'owner, member, billing or read-only'),
  ).action((id: string, { user, role, ...options }: CommonOptions & { user: string; role: string }) =>
    show(deps, options, { method: 'POST', url: urlOf(id), payload: { user, role } }),
  );
}

interface AddOptions extends CommonOptions {
  email: string;
  name: string;
  operator?: boolean;
  org?: string;
  role?: string;
}

const CHANGES = {
  promote: 'make a person (id or e-mail address) an operator, who needs a second factor',
  demote: 'take the rights of an operator from a person, and end the sessions of the person',
  block: 'let a person sign in no more; ends the sessions, the keys from logins of programs, and the open invitations',
  unblock: 'let a person who is blocked sign in again',
};

export function addUserCommands(admin: Command, deps: CommandDeps): void {
  const user = admin.command('user').description('people who sign in');
  withCommon(
    user
      .command('add')
      .description('add a person; the answer has a link, which works once and for a day, to set a password')
      .requiredOption('--email <address>', 'with which the person signs in')
      .requiredOption('--name <name>', 'for people')
      .option('--operator', 'the person operates this installation, and needs a second factor')
      .option('--org <id>', 'make the person a member of this organisation')
      .option('--role <role>', 'owner, member, billing or read-only; needed with --org'),
  ).action(({ email, name, operator = false, org, role, ...options }: AddOptions) => {
    const member = { ...(org === undefined ? {} : { org_id: org }), ...(role === undefined ? {} : { role }) };
    const payload = { email, name, is_operator: operator, ...member };
    return show(deps, options, { method: 'POST', url: '/admin/users', payload });
  });
  withCommon(
    user
      .command('reset <user>')
      .description(
        'make a link for a person (id or e-mail address) who has lost access; using it ends all sessions and factors',
      ),
  ).action((id: string, options: CommonOptions) =>
    show(deps, options, { method: 'POST', url: `/admin/users/${encodeURIComponent(id)}/reset` }),
  );
  for (const [verb, description] of Object.entries(CHANGES)) {
    withCommon(
      user
        .command(`${verb} <user>`)
        .description(description)
        .requiredOption('--reason <text>', 'why; it is kept in the audit'),
    ).action((id: string, { reason, ...options }: CommonOptions & { reason: string }) =>
      show(deps, options, {
        method: 'POST',
        url: `/admin/users/${encodeURIComponent(id)}/${verb}`,
        payload: { reason },
      }),
    );
  }
  withSearch(user.command('list').description('all people, newest first'), 'their e-mail address, name or id').action(
    ({ search, ...options }: SearchOptions) => showPage(deps, options, '/admin/users', { search }),
  );
}

const BASE = '/admin/webhook-endpoints';

export function addWebhookCommands(admin: Command, deps: CommandDeps): void {
  const webhook = admin.command('webhook').description("customers' webhook endpoints");
  withPages(
    webhook
      .command('list')
      .description('those with deliveries that were given up or are overdue, the newest need first'),
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
