// Pure: how much of a credit or payment is granted at once, and whether the outages of an organisation look self-made.

/** What may be given away in any 24 hours without the operator, in microcents. */
export interface LossBounds {
  /** Uncharged time of one organisation. */
  orgCreditsUcents: bigint;
  /** Uncharged time on the hosts of one supplier, which loses the money. */
  supplierCreditsUcents: bigint;
  /** Payments to one supplier for our own outages. */
  supplierPaymentsUcents: bigint;
}

export const BOUND_WINDOW_MS = 24 * 3_600_000;

export type HeldWhy = 'flagged' | 'org_bound' | 'supplier_bound';

export interface Split {
  grantedUcents: bigint;
  heldUcents: bigint;
  /** The bound that holds the rest back. */
  why: HeldWhy;
}

/** The amount given in the last 24 hours, and the amount that may be given. */
export interface Bound {
  why: HeldWhy;
  usedUcents: bigint;
  maxUcents: bigint;
}

/** Splits an amount into the part that is granted at once and the part that is held. The bound with the smallest remainder decides. */
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
/** An organisation with fewer outages is not suspected, because that can be bad luck. */
const OUTAGES_MIN = 5;
/**
 * An organisation is not suspected for one machine alone. A machine can fail for one organisation only, because of one GPU or its network.
 */
const MACHINES_MIN = 2;

/**
 * Whether the rentals of an organisation fail on machines that serve others well. `machineIds` has one entry per outage in the window.
 * `servedWell` are the machines that served other organisations in the same time without an outage.
 */
export function isSuspect(machineIds: readonly string[], servedWell: ReadonlySet<string>): boolean {
  return areEnough(machineIds.filter((id) => servedWell.has(id)));
}

/** Whether outages on these machines are enough for a suspicion, if all of the machines served others well. */
export function areEnough(machineIds: readonly string[]): boolean {
  return machineIds.length >= OUTAGES_MIN && new Set(machineIds).size >= MACHINES_MIN;
}
