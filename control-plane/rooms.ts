// Creates and connects the rooms of the house in their order. Opens no socket and starts no loop: house.ts does that, and tests drive the
// rooms by hand.
import { openSshKeys } from './base/accounts/ssh-keys.ts';
import { openReadiness } from './base/db/readiness.ts';
import { openEvents, type Events } from './base/events/events.ts';
import { openOperations } from './base/operations/operations.ts';
import type { Changeable, Core, Settings } from './settings.ts';
import {
  type AboveRental,
  type BelowModels,
  type Fleet,
  type Models,
  openFleet,
  openModels,
  openMoney,
  openRental,
  type Outside,
  type Rental,
} from './wings.ts';
import { type Accounts, openAccounts } from './base/accounts/accounts.ts';
import type { Mail } from './base/mail/mail.ts';
import { openUsers, type Users } from './base/users/users.ts';
import type { Ledger } from './money/ledger/ledger.ts';

/** The opened rooms, by name. */
export type Rooms = ReturnType<typeof openRooms>;

/** Opens all rooms in their order. Rooms read the `Changeable` settings at each use, so that `reload` can change them. */
export function openRooms(core: Core, given: Settings, outside: Outside) {
  const { db, clock, ids, log } = core;
  const { nudges, storage, members } = outside;
  // A copy, so that a reload changes no object of the caller.
  const settings = { ...given, presets: { ...given.presets } };
  const sshKeys = openSshKeys({ clock, ids });
  const events = openEvents({
    clock,
    ids,
    onAppend: async (tx, event) => {
      await rental.webhooks.noteEvent(tx, event);
      await rental.notices.noteEvent(tx, event);
      await rental.instances.noteEvent(tx, event);
      await models.replicas.noteEvent(tx, event);
    },
  });
  const operations = openOperations({ clock, ids });
  const money = openMoney(core, settings, { events, nudges });
  const { ledger } = money;
  const { accounts, users } = openIdentity(core, settings, { events, ledger, mail: outside.mail });
  const fleet: Fleet = openFleet(core, settings, {
    events,
    nudges,
    noteObserved: (tx, id, observed) =>
      (models.fineTuning.isJob(id) ? models.fineTuning : rental.instances).noteObserved(tx, id, observed),
    noteGpus: (found) => rental.instances.noteGpus(found),
    pullLogin: (machineId, workloadId) => rental.instances.pullLogin(machineId, workloadId),
    jobUrl: (machineId, workloadId, purpose) => models.fineTuning.urlFor(machineId, workloadId, purpose),
    onJobEvents: (machineId, workloadId, events) => models.fineTuning.takeEvents(machineId, workloadId, events),
    onLife: (machineId) => rental.watch.onLife(machineId),
    onHolder: (machineId, message) => rental.watch.onHolder(machineId, message),
  });
  const base = { accounts, users, sshKeys, events, operations };
  const skipJobs: AboveRental['skipJobs'] = (step) => models.fineTuning.skip(step);
  const rental: Rental = openRental(core, settings, { outside, ...base, ...money, ...fleet, skipJobs });
  const openStream = outside.openStream ?? fleet.link.openStream;
  const below: BelowModels = {
    ...fleet,
    accounts,
    events,
    ledger,
    instances: rental.instances,
    quiet: rental.quiet,
    openStream,
    storage,
    members,
    nudges,
  };
  const models: Models = openModels(core, settings, below);
  return {
    readiness: openReadiness({ db, clock, log, hasRoom: outside.hasRoom }),
    ...storage,
    ...base,
    ...money,
    ...fleet,
    ...rental,
    ...models,
    /** Changes all `Changeable` settings in one step. Rooms use the new values from their next read on. */
    reload: ({ presets, ...next }: Changeable): void => {
      Object.assign(settings, next);
      Object.assign(settings.presets, presets);
      models.catalog.replace(next.models);
    },
  };
}

interface AroundIdentity {
  events: Events;
  ledger: Pick<Ledger, 'wasFunded'>;
  mail: Mail;
}

interface Identity {
  accounts: Accounts;
  users: Users;
}

/** Opens the rooms that know who may act. `settings` may change later: rooms read the `Changeable` settings at each use. */
function openIdentity(core: Core, settings: Settings, { events, ledger, mail }: AroundIdentity): Identity {
  const accounts = openAccounts({ ...core, events, wasFunded: ledger.wasFunded });
  const { origin, oidc } = settings;
  const policy = (): Settings['signUpPolicy'] => settings.signUpPolicy;
  return { accounts, users: openUsers({ ...core, events, accounts, mail, origin, oidc, policy }) };
}
