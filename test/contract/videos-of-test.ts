// The API with video models, for each test of a file: as in api-of-test.ts, and their server, which lives as long.
import { afterEach, beforeEach, expect } from 'vitest';
import { VideoJob } from '../../shared/api/videos.ts';
import { wallet } from '../../control-plane/money/ledger/accounts.ts';
import { videoModels } from '../kit/models.ts';
import { openVideoServer, type VideoServer } from '../kit/video-server.ts';
import type { WorldOutside } from '../kit/world.ts';
import type { Answer, ApiAccount } from './api.ts';
import { api, openApiForEachTest, owner } from './api-of-test.ts';

export const VIDEOS = '/v1/videos';
/** The price of four seconds, in microcents. */
export const FOUR_SECONDS = 4_000_000n;

export let server: VideoServer;

/** Every test of the file gets its own. The server closes after the API, which may still be asking it. */
export function openVideosForEachTest(settings: WorldOutside['settings'] = {}): void {
  beforeEach(async () => {
    server = await openVideoServer();
  });
  afterEach(() => server.close());
  openApiForEachTest(() => {
    const models = videoModels([{ base_url: server.baseUrl, engine: 'vllm_omni', max_open_requests: 4 }]);
    return { settings: { models, ...settings } };
  });
}

export function submit(body: object = {}, account: ApiAccount = owner): Promise<Answer> {
  return api.call('POST', VIDEOS, { key: account.key, body: { model: 'director', prompt: 'a cat', ...body } });
}

/** A job that was taken into the queue. */
export async function submitted(body: object = {}, account: ApiAccount = owner): Promise<VideoJob> {
  const answer = await submit(body, account);
  expect(answer.status).toBe(202);
  return VideoJob.parse(answer.json);
}

export async function read({ id }: Pick<VideoJob, 'id'>, account: ApiAccount = owner): Promise<VideoJob> {
  return VideoJob.parse((await api.call('GET', `${VIDEOS}/${id}`, { key: account.key })).json);
}

/** Drives what is due, then what comes due within the given seconds. */
export async function driveFor(seconds: number): Promise<void> {
  await api.world.drive();
  for (let i = 0; i < seconds; i += 1) {
    await api.world.clock.advance(1_000);
    await api.world.drive();
  }
}

/** A job whose file is here: of four seconds, unless `body` says otherwise. */
export async function completed(body: object = {}, account: ApiAccount = owner): Promise<VideoJob> {
  server.usual = { status: 'completed', progress: 100 };
  const { id } = await submitted(body, account);
  await api.world.drive();
  server.usual = { status: 'queued', progress: 0 };
  return read({ id }, account);
}

/** The owner's money in microcents, and what of it is set aside. */
export async function money({ orgId }: ApiAccount = owner): Promise<{ posted: bigint; held: bigint }> {
  const { postedUcents, heldUcents } = await api.world.rooms.ledger.balance(api.world.db.read, wallet(orgId));
  return { posted: postedUcents, held: heldUcents };
}
