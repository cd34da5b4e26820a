// A world with video servers for room tests: jobs are submitted and driven without the API.
import type { VideoRequest } from '../../../shared/api/videos.ts';
import type { Reply } from '../../../control-plane/base/http/route.ts';
import { wallet } from '../../../control-plane/money/ledger/accounts.ts';
import { findJob, type Job } from '../../../control-plane/models/videos/store.ts';
import { videoModels } from '../../kit/models.ts';
import type { VideoServer } from '../../kit/video-server.ts';
import { openWorld, type World, type WorldOutside, type WorldAccount } from '../../kit/world.ts';

/** The price of four seconds, in microcents. */
const FOUR_SECONDS = 4_000_000n;
export const CENTS = 100;
const FUNDS = BigInt(CENTS) * 1_000_000n;

export type Who = WorldAccount;

/** Servers in the order in which idle ones are asked; `more` are settings of each. */
export function openVideoWorld(
  servers: readonly VideoServer[],
  { more = [], outside = {} }: { more?: readonly object[]; outside?: WorldOutside } = {},
): Promise<World> {
  const upstreams = servers.map(({ baseUrl }, i) => ({ base_url: baseUrl, engine: 'vllm_omni', ...more[i] }));
  return openWorld(1, { ...outside, settings: { models: videoModels(upstreams), ...outside.settings } });
}

export async function submitVideo(
  world: World,
  who: Who,
  body: Partial<VideoRequest> = {},
  settle: () => Promise<void> = async () => undefined,
): Promise<string> {
  const reply: Reply = await world.rooms.videos.submit({
    caller: { ...who, scopes: [] },
    requestId: 'req_test',
    body: { model: 'director', prompt: 'a cat', ...body },
    isForm: false,
    settle,
  });
  return (reply.body as { id: string }).id;
}

export async function jobOf(world: World, id: string): Promise<Job> {
  const job = await findJob(world.db.read, id);
  if (job === undefined) throw new Error(`there is no job ${id}`);
  return job;
}

/** Drives what is due now, and then each second. */
export async function driveFor(world: World, seconds: number): Promise<void> {
  await world.drive();
  for (let i = 0; i < seconds; i += 1) {
    await world.clock.advance(1_000);
    await world.drive();
  }
}

/** Whether the customer has paid for a video of four seconds, and nothing is held. */
export async function paid(world: World, { orgId }: Who): Promise<boolean> {
  const { postedUcents, heldUcents } = await world.rooms.ledger.balance(world.db.read, wallet(orgId));
  if (heldUcents !== 0n) throw new Error(`${heldUcents} microcents are still held`);
  if (postedUcents !== FUNDS && postedUcents !== FUNDS - FOUR_SECONDS)
    throw new Error(`${FUNDS - postedUcents} microcents were charged`);
  return postedUcents !== FUNDS;
}
