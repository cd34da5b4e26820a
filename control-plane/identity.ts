// Opens the rooms that know who may act: organisations with their keys, and people with their sessions.
import { type Accounts, openAccounts } from './base/accounts/accounts.ts';
import type { Events } from './base/events/events.ts';
import type { Mail } from './base/mail/mail.ts';
import { openUsers, type Users } from './base/users/users.ts';
import type { Ledger } from './money/ledger/ledger.ts';
import type { Core, Settings } from './settings.ts';

interface Around {
  events: Events;
  ledger: Pick<Ledger, 'wasFunded'>;
  mail: Mail;
}

export interface Identity {
  accounts: Accounts;
  users: Users;
}

/** `settings` may change later: rooms read the `Changeable` settings at each use. */
export function openIdentity(core: Core, settings: Settings, { events, ledger, mail }: Around): Identity {
  const accounts = openAccounts({ ...core, events, wasFunded: ledger.wasFunded });
  const { origin, oidc } = settings;
  const policy = (): Settings['signUpPolicy'] => settings.signUpPolicy;
  return { accounts, users: openUsers({ ...core, events, accounts, mail, origin, oidc, policy }) };
}
