// Packets: bodies that are one statement (`HotBody`) share a transaction, and all of it travels in one packet.
//
//   BEGIN; check of the lease; statement of body 1; statement of body 2; ... ; COMMIT     -> all answers
//
// So a paid request to a model costs two round trips in all, however far the server is. The statements run in the order of the rows that
// they lock. Two control planes that send such packets at the same time wait for each other, but never in a circle.
//
// A refusal is a result. If a statement fails, the whole packet is rolled back, and it is sent again without that body.
import { fullJitterMs } from '../../../shared/backoff.ts';
import type { Clock } from '../../../shared/clock.ts';
import type { Rng } from '../../../shared/rng.ts';
import { type HotBody, isAway } from './db.ts';
import type { BodyResult } from './group-commit.ts';
import { BEGIN, COMMIT, isCollision, onConnection, type Writing } from './postgres-connections.ts';
import type { Answered } from './postgres-pipeline.ts';

export const BODIES_PER_PACKET_MAX = 64;
const TRIES_MAX = 10;

/** Resolves with one result per body, in order. */
export async function sendPacket(
  packet: readonly HotBody<unknown>[],
  writing: Writing,
  { clock, rng }: { clock: Clock; rng: Rng },
): Promise<BodyResult[]> {
  const results = new Map<HotBody<unknown>, BodyResult>();
  let collisions = 0;
  for (;;) {
    const left = packet.filter((body) => !results.has(body)).toSorted((a, b) => compare(a.locks, b.locks));
    if (left.length === 0) return packet.map((body) => results.get(body) ?? { error: new Error('it was not sent') });
    const sent = await sendOnce(left, writing);
    if (sent.failed === undefined) {
      for (const [i, body] of left.entries()) results.set(body, resultOf(body, sent.answers[i]));
      continue;
    }
    const { body, error } = sent.failed;
    if (!isCollision(error)) {
      results.set(body, { error });
      continue;
    }
    collisions += 1;
    if (collisions > TRIES_MAX) throw error;
    await clock.sleep(fullJitterMs(collisions, 1, 200, rng));
  }
}

type Sent = { failed: undefined; answers: Answered[] } | { failed: { body: HotBody<unknown>; error: unknown } };

/** Throws if the transaction failed for all bodies. */
async function sendOnce(bodies: readonly HotBody<unknown>[], writing: Writing): Promise<Sent> {
  let failed: { body: HotBody<unknown>; error: unknown } | undefined;
  try {
    const answers = await onConnection(writing, async (client) => {
      const { ask, statements } = writing;
      const fence = writing.fence();
      const begun = [BEGIN, ...(fence === undefined ? [] : [fence])].map((each) => ask(client, each));
      const answers = bodies.map((body) => ask(client, statements.prepared(body.statement())));
      const committed = ask(client, COMMIT);
      const settled = await Promise.allSettled([...begun, ...answers, committed]);
      const first = settled.findIndex(({ status }) => status === 'rejected');
      if (first < 0) return Promise.all(answers);
      const { reason: error } = settled[first] as PromiseRejectedResult;
      const body = bodies[first - begun.length];
      if (body !== undefined && !isAway(error)) failed = { body, error };
      throw error;
    });
    return { failed: undefined, answers };
  } catch (error) {
    if (failed === undefined) throw error;
    return { failed };
  }
}

function resultOf(body: HotBody<unknown>, answer: Answered | undefined): BodyResult {
  const decoded = body.row.safeParse(answer?.rows[0]);
  return decoded.success ? { value: decoded.data } : { error: decoded.error };
}

function compare(a: string, b: string): number {
  return a < b ? -1 : Number(a > b);
}
