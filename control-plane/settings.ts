// Types that all rooms share: the dependencies of every room, the operator's settings, and the functions that wake other parts.
import type { Clock } from '../shared/clock.ts';
import type { Ids } from '../shared/ids.ts';
import type { Log } from '../shared/log.ts';
import type { Rng } from '../shared/rng.ts';
import type { Db } from './base/db/db.ts';
import type { Sealing } from './base/http/sealing.ts';
import type { OidcSettings } from './base/users/oidc.ts';
import type { SignUpPolicy } from './base/users/people.ts';
import type { CatalogModel } from './models/catalog/models.ts';
import type { DepositSettings } from './money/deposits/settings.ts';
import type { LossBounds } from './money/credits/bounds.ts';
import type { Every } from './money/payouts/plan.ts';
import type { AppSite } from './rental/endpoints/app-address.ts';
import type { Presets } from './rental/launch/runnable.ts';

/** Dependencies that every room may get. */
export interface Core {
  db: Db;
  clock: Clock;
  ids: Ids;
  rng: Rng;
  log: Log;
  sealing: Sealing;
}

export interface Settings {
  /** Scheme, host and port of the API and of the pages that use it, like `https://api.example.com`. */
  origin: string;
  signUpPolicy: SignUpPolicy;
  /** The provider of single sign-on; undefined: people sign in only with the means of this service, such as a password. */
  oidc: OidcSettings | undefined;
  platformFeeBps: number;
  launchHoldMinutes: number;
  /** The time from an entry of earnings until it may be paid out. */
  earningsDelayMs: number;
  /** How often payouts are made, the smallest of them, and the time until a change of their destination is in force. */
  payouts: { every: Every; minimumUcents: bigint; destinationDelayMs: number };
  /** The time before a reservation contract begins in which its GPUs are set aside. */
  reservationLeadMs: number;
  /** Limits of credits and payments that are made in a day without a decision of the operator. */
  lossBounds: LossBounds;
  /** Settings of stablecoin deposits; undefined: the service takes no deposits. */
  deposits?: DepositSettings | undefined;
  openLaunchesPerOrg: number;
  /** GPU hours that launches and fine-tuning jobs of one organisation may hold without paying, in any 24 hours. */
  unpaidGpuHoursPerOrg: number;
  diskPriceUcentsPerGbHour: bigint;
  /** The host name at which customers reach an instance. */
  hostnameOf(instanceId: string): string;
  /** The address of applications; undefined if they are not served. */
  appSite: AppSite | undefined;
  sshPorts: { first: number; last: number };
  /** Address at which probes connect to the public SSH ports. */
  sshHost: string;
  /** Templates and environments, which can be launched without an own image. */
  presets: Presets;
  /** Most attempts of one webhook delivery. */
  webhookMaxAttempts: number;
  /** The models that can be called. */
  models: readonly CatalogModel[];
  /** Limit of open inference requests of one API key. */
  openInferenceRequestsPerKey: number;
  /** Limit of open inference requests of all keys of one organisation together. */
  openInferenceRequestsPerOrg: number;
  /** Limit of open jobs of one organisation. */
  openVideosPerOrg: number;
  /** The largest file of a video. */
  videoBytesMax: number;
  /** Limits for one uploaded file, and for all files of one organisation. */
  fileBytesMax: number;
  fileBytesPerOrg: number;
}

/** Settings that the operator may change while the process runs. Rooms read them at each use and keep no copy. */
export type Changeable = Pick<
  Settings,
  | 'presets'
  | 'signUpPolicy'
  | 'models'
  | 'openLaunchesPerOrg'
  | 'openInferenceRequestsPerKey'
  | 'openInferenceRequestsPerOrg'
  | 'openVideosPerOrg'
>;

/** Functions that rooms call after a commit, to wake other parts. */
export interface Nudges {
  engine(): void;
  edge(): void;
  watch(): void;
  webhooks(): void;
}
