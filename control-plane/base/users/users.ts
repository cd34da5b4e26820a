// The room of people: opens its parts, which share the rows of this room.
import type { Log } from '../../../shared/log.ts';
import type { Rng } from '../../../shared/rng.ts';
import type { Sealing } from '../http/sealing.ts';
import { openAttempts } from './attempts.ts';
import { type DeviceLogins, openDeviceLogins } from './device-logins.ts';
import { type Invitations, openInvitations } from './invitations.ts';
import { type Members, openMembers } from './members.ts';
import { type Oidc, openOidc, type OidcSettings } from './oidc.ts';
import { openPasskeys, type Passkeys } from './passkeys.ts';
import { openPasswords } from './passwords.ts';
import { openPeople, type People, type PeopleDeps } from './people.ts';
import { openSecondFactors, type SecondFactors } from './second-factors.ts';
import { openSessions, type Sessions } from './sessions.ts';
import { openSignIn, type SignIn } from './sign-in.ts';

export interface Users {
  sessions: Sessions;
  signIn: SignIn;
  secondFactors: SecondFactors;
  passkeys: Passkeys;
  oidc: Oidc;
  deviceLogins: DeviceLogins;
  people: People;
  members: Members;
  invitations: Invitations;
}

export interface UsersDeps extends Pick<
  PeopleDeps,
  'db' | 'clock' | 'ids' | 'events' | 'accounts' | 'mail' | 'origin' | 'policy'
> {
  sealing: Sealing;
  rng: Rng;
  log: Log;
  oidc: OidcSettings | undefined;
}

export function openUsers(deps: UsersDeps): Users {
  const attempts = openAttempts(deps);
  const passwords = openPasswords(deps);
  const secondFactors = openSecondFactors({ ...deps, issuer: new URL(deps.origin).host });
  const sessions = openSessions(deps);
  const parts = { ...deps, attempts, passwords, secondFactors, sessions };
  const signIn = openSignIn(parts);
  const all: PeopleDeps = { ...parts, signIn };
  const passkeys = openPasskeys(parts);
  return {
    sessions,
    signIn,
    secondFactors,
    passkeys,
    oidc: openOidc(parts),
    deviceLogins: openDeviceLogins(parts),
    people: openPeople(all),
    members: openMembers(parts),
    invitations: openInvitations(all),
  };
}
