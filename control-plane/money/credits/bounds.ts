// Pure: how much of a credit or payment flows at once, and whether a tenant's outages look like its own doing.

/** What may be given away in any 24 hours without the operator, in microcents. */
export interface LossBounds {
  /** Uncharged time of one organisation. */
  orgCreditsUcents: bigint;
  /** Uncharged time on the hosts of one supplier, which loses it. */
  supplierCreditsUcents: bigint;
  /** What one supplier is paid for time in which we were away ourselves. */
  supplierPaymentsUcents: bigint;
}

export const BOUND_WINDOW_MS = 24 * 3_600_000;

export type HeldWhy = 'flagged' | 'org_bound' | 'supplier_bound';

export interface Split {
  grantedUcents: bigint;
  heldUcents: bigint;
  /** What holds the rest. */
  why: HeldWhy;
}

/** What was given in the last 24 hours, beside what may be given. */
export interface Bound {
  why: HeldWhy;
  usedUcents: bigint;
  maxUcents: bigint;
}

/** The tightest bound decides. */
export function splitAt(worthUcents: bigint, bounds: readonly [Bound, ...Bound[]]): Split {
  const [first, ...others] = bounds.map(({ why, usedUcents, maxUcents }) => ({
    why,
    leftUcents: usedUcents < maxUcents ? maxUcents - usedUcents : 0n,
  })) as [{ why: HeldWhy; leftUcents: bigint }, ...{ why: HeldWhy; leftUcents: bigint }[]];
  const tightest = others.reduce((least, each) => (each.leftUcents < least.leftUcents ? each : least), first);
  const grantedUcents = worthUcents < tightest.leftUcents ? worthUcents : tightest.leftUcents;
  return { grantedUcents, heldUcents: worthUcents - grantedUcents, why: tightest.why };
}

export const FLAG_WINDOW_MS = 7 * 24 * 3_600_000;
/** Bad luck explains fewer. */
const OUTAGES_MIN = 5;
/** One host may be bad for one tenant alone: its GPU, its place in the network. */
const MACHINES_MIN = 2;

/**
 * Whether a tenant's rentals fail where others are served well: `machineIds` has one entry for each of its outages in the window,
 * `servedWell` the machines that served other organisations in the same time without one.
 */
export function isSuspect(machineIds: readonly string[], servedWell: ReadonlySet<string>): boolean {
  const telling = machineIds.filter((id) => servedWell.has(id));
  return telling.length >= OUTAGES_MIN && new Set(telling).size >= MACHINES_MIN;
}
