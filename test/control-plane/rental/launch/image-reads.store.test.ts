// New images of Docker Hub that an organisation may name without a login: how many, and which do not count.
import { afterEach, beforeEach, expect, test } from 'vitest';
import type { Db } from '../../../../control-plane/base/db/db.ts';
import { SCHEMA } from '../../../../control-plane/foundation.ts';
import type { Images } from '../../../../control-plane/rental/launch/images.ts';
import { type LaunchRoom, openLaunch } from '../../../../control-plane/rental/launch/launch.ts';
import { createIds } from '../../../../shared/ids.ts';
import { IMAGE_READS_BURST, IMAGE_READS_PER_HOUR } from '../../../../shared/limits.ts';
import { createLog } from '../../../../shared/log.ts';
import { seededRng } from '../../../../shared/rng.ts';
import { openTestDb } from '../../../kit/databases.ts';
import { type VirtualClock, virtualClock } from '../../../kit/virtual-clock.ts';
import { LAUNCH } from '../../../kit/world.ts';

let clock: VirtualClock;
let db: Db;
let room: LaunchRoom;
beforeEach(async () => {
  clock = virtualClock();
  db = await openTestDb(SCHEMA, clock);
  const verify: Images['verify'] = async (_reference, _login, asking) => {
    asking?.onRead?.();
    return { digest: `sha256:${'a'.repeat(64)}`, layersBytes: 1, hasEntrypoint: true, hasCmd: true };
  };
  const deps = { db, clock, ids: createIds(clock, seededRng(1)), log: createLog('test', 'silent') };
  room = openLaunch({ ...deps, images: { verify }, presets: {}, sealing: {}, modelHub: {} } as never);
});
afterEach(() => db.close());

const name = (image: string, orgId = 'org'): Promise<unknown> => room.runnable(orgId, { ...LAUNCH, image });
const REFUSED = {
  code: 'rate_limit_exceeded',
  details: { detail: expect.stringContaining('Docker Hub without a login') },
};

test('are as many as the burst, and one more for each part of an hour', async () => {
  for (let i = 0; i < IMAGE_READS_BURST; i += 1) await name(`app:${i}`);
  await expect(name('app:more')).rejects.toMatchObject(REFUSED);
  await clock.advance(3_600_000 / IMAGE_READS_PER_HOUR - 1);
  await expect(name('app:more')).rejects.toMatchObject(REFUSED);
  await clock.advance(1);
  await name('app:more');
  await expect(name('app:still')).rejects.toMatchObject(REFUSED);
  // Another organisation, and another registry, do not count.
  await name('app:more', 'other');
  for (let i = 0; i <= IMAGE_READS_BURST; i += 1) await name(`ghcr.io/a/app:${i}`);
});
