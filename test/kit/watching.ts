// Probes the instances of a world over virtual time, as the loop of the room does.
import type { World } from './world.ts';

const NEVER = new AbortController().signal;

/** Runs the watch loop once a second for `ms`. */
export async function watchFor({ rooms, clock }: World, ms: number): Promise<void> {
  for (let passed = 0; passed < ms; passed += 1000) {
    await rooms.watch.run(NEVER);
    await clock.advance(1000);
  }
}
