// The room of organisations and keys alone, for tests that need no other room: nobody reads its events, and no organisation waits for money.
import { type Accounts, openAccounts } from '../../control-plane/base/accounts/accounts.ts';
import { openEvents } from '../../control-plane/base/events/events.ts';
import type { Core } from '../../control-plane/settings.ts';

export function openAccountsAlone({ db, clock, ids }: Pick<Core, 'db' | 'clock' | 'ids'>): Accounts {
  const events = openEvents({ clock, ids, onAppend: async () => undefined });
  return openAccounts({ db, clock, ids, events, wasFunded: async () => false });
}
