// One story of a fleet: what customers do and what goes wrong, drawn from a seed; the rules are asked after every step, and in the end.
import { findMachine } from '../../control-plane/fleet/supply/store.ts';
import { isoTime } from '../../shared/clock.ts';
import { audit } from './audit.ts';
import { TROUBLES, type Trouble } from './troubles.ts';
import { type Customer, type Fleet, type FleetSize, openFleet } from './fleet.ts';
import { brokenRules, journalHash, leftOver } from './rules.ts';

export interface Plot {
  size: FleetSize;
  steps: number;
  /** The names of the troubles that happen. All others stay away. */
  troubles: readonly Trouble['name'][];
}

export interface Outcome {
  hash: string;
  /** Kinds of steps that happened. */
  seen: Set<string>;
}

const STEP_MS_MAX = 90_000;
/** The time is longer than every deadline of a launch on three hosts, the grace of an outage, and a quarantine. */
const PEACE_MS_MAX = 3 * 3_600_000;
const PEACE_STEP_MS = 120_000;
const NOTES = 25;
const IMAGES = 5;
/** Customers delete what they have launched lately. Some of it is over by then. */
const LATEST = 8;

/** @throws Error with the seed, the last steps and the rules that are broken */
export async function live(seed: number, plot: Plot): Promise<Outcome> {
  const fleet = await openFleet(seed, plot.size);
  const notes: string[] = [];
  const seen = new Set<string>();
  const note = (kind: string, detail: string): void => {
    seen.add(kind);
    notes.push(`${isoTime(fleet.clock.now())} ${kind} ${detail}`);
  };
  const check = async (broken: string[]): Promise<void> => {
    if (broken.length === 0) return;
    throw new Error(
      [`seed ${seed}; replay it with SIM_SEED=${seed}`, ...notes.slice(-NOTES), 'broken:', ...broken].join('\n  '),
    );
  };
  try {
    await fleet.clock.advance(5_000);
    for (let step = 0; step < plot.steps; step += 1) {
      await take(fleet, plot, note);
      await fleet.clock.advance(1 + Math.floor(fleet.rng.float() ** 2 * STEP_MS_MAX));
      await check(await brokenRules(fleet));
    }
    await check(await peace(fleet));
    await check(await brokenRules(fleet));
    for (const id of fleet.instances.keys()) await fleet.remove(id);
    await check(await peace(fleet));
    await check([...(await brokenRules(fleet)), ...(await audit(fleet))]);
    return { hash: await journalHash(fleet), seen };
  } finally {
    fleet.plane.kill();
    await fleet.plane.world().close();
  }
}

/** Waits until everything is over. Returns what is not over if that takes too long. */
async function peace(fleet: Fleet): Promise<string[]> {
  let left = ['nothing was asked'];
  for (let waitedMs = 0; waitedMs < PEACE_MS_MAX && left.length > 0; waitedMs += PEACE_STEP_MS) {
    await fleet.clock.advance(PEACE_STEP_MS);
    await clearUnknown(fleet);
    left = fleet.busy.size > 0 ? [...fleet.busy] : await leftOver(fleet);
  }
  return left;
}

/** Does the operator's part: containers that nobody knows after a restored backup are removed by hand, and one of two copies ends. */
async function clearUnknown({ plane, hosts }: Fleet): Promise<void> {
  if (!plane.isUp()) return;
  const { rooms, db } = plane.world();
  for (const { machineId, isCopied } of hosts) {
    const machine = await findMachine(db.read, machineId);
    if (machine?.copied_ms != null && !isCopied()) await rooms.supply.setCopied(machineId, false);
    for (const id of machine?.unknown_workloads ?? []) {
      await rooms.workloads.removeUnknown(machineId, id);
      rooms.link.push(machineId);
    }
  }
}

async function take(fleet: Fleet, plot: Plot, note: (kind: string, detail: string) => void): Promise<void> {
  const { rng } = fleet;
  const roll = rng.float();
  if (fleet.plane.isUp() && roll < 0.35) {
    const who = pick(fleet.customers, rng.float()) as Customer;
    const wish = {
      gpu_count: 1 + Math.floor(rng.float() * 2),
      image: `image-${Math.floor(rng.float() * IMAGES)}`,
      ...(rng.float() < 0.3 ? { auto_terminate_hours: 1 } : {}),
    };
    return note('launch', `${JSON.stringify(wish)}: ${(await fleet.launch(who, wish)) ?? 'refused'}`);
  }
  if (fleet.plane.isUp() && roll < 0.6) {
    const id = pick([...fleet.instances.keys()].slice(-LATEST), rng.float());
    if (id !== undefined) await fleet.remove(id);
    return note('delete', id ?? 'nothing');
  }
  if (fleet.plane.isUp() && roll < 0.64) {
    const host = pick(fleet.hosts, rng.float());
    if (host !== undefined) await fleet.reprice(host);
    return note('price', host?.machineId ?? 'nothing');
  }
  const trouble = pick(
    TROUBLES.filter(({ name }) => plot.troubles.includes(name)),
    rng.float(),
  );
  if (trouble !== undefined) note(trouble.name, trouble.begin(fleet) ?? 'elsewhere');
}

function pick<T>(list: readonly T[], at: number): T | undefined {
  return list[Math.floor(at * list.length)];
}
