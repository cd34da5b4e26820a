// The login for a private image goes to the host that has to pull it now, and to nobody else.
import { afterEach, beforeEach, expect, test } from 'vitest';
import { sql } from '../../../control-plane/base/db/db.ts';
import { pullLogin } from '../../../control-plane/rental/instances/host-messages.ts';
import { findInstance } from '../../../control-plane/rental/instances/store.ts';
import { openWorld, type World, type WorldAccount } from '../../kit/world.ts';

const LOGIN = { kind: 'bearer', token: 't' } as const;

let world: World;
let who: WorldAccount;
let id: string;
let asked: string[];
beforeEach(async () => {
  world = await openWorld();
  await world.machine();
  who = await world.customer(100_000);
  id = await world.launch(who);
  asked = [];
});
afterEach(() => world.close());

const place = async (): Promise<{ machineId: string; workloadId: string }> => {
  const row = await findInstance(world.db.read, id);
  return { machineId: row?.machine_id ?? '', workloadId: row?.workload_id ?? '' };
};
/** Gives the image of the instance a login. */
const makePrivate = (): Promise<number> =>
  world.db.tx('private', (tx) =>
    tx.run(
      sql`update instances set launch = replace(launch, '"registry_credential_id":null', '"registry_credential_id":"rc"')`,
    ),
  );
const loginFor = (machineId: string, workloadId: string) =>
  pullLogin(machineId, workloadId, {
    db: world.db,
    imagePullLogin: async (orgId, image, credentialId) => {
      asked.push(`${orgId} ${image.split('@')[0]} ${credentialId}`);
      return LOGIN;
    },
  });

test('the host of a workload that is wanted gets it', async () => {
  await makePrivate();
  const { machineId, workloadId } = await place();
  expect(await loginFor(machineId, workloadId)).toEqual(LOGIN);
  const image = (await findInstance(world.db.read, id))?.launch.image.split('@')[0];
  expect(asked).toEqual([`${who.orgId} ${image} rc`]);
});

test('nobody gets one for a public image', async () => {
  const { machineId, workloadId } = await place();
  expect(await loginFor(machineId, workloadId)).toBeUndefined();
});

test('neither another machine nor an unknown workload gets one', async () => {
  await makePrivate();
  const { machineId, workloadId } = await place();
  const other = await world.machine();
  expect(await loginFor(other.machineId, workloadId)).toBeUndefined();
  expect(await loginFor(machineId, 'nothing')).toBeUndefined();
  expect(asked).toEqual([]);
});

test('a host whose workload is to go gets none, and neither does the host of an earlier placement', async () => {
  await makePrivate();
  const first = await place();
  await world.machine();
  await world.observe(id, { phase: 'failed', failure_code: 'engine_unavailable', detail: 'the disk broke' });
  await world.drive();
  const second = await place();
  expect(second.machineId).not.toBe(first.machineId);
  expect(await loginFor(first.machineId, first.workloadId)).toBeUndefined();
  expect(await loginFor(second.machineId, second.workloadId)).toEqual(LOGIN);
  await world.remove(who, id);
  expect(await loginFor(second.machineId, second.workloadId)).toBeUndefined();
});
