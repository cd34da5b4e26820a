// Suppliers as tests of the API need them: machines of an organisation, on offer.
import { inventoryOf, linkHost } from '../kit/machines.ts';
import { watchFor } from '../kit/watching.ts';
import type { Api, ApiAccount } from './api.ts';

/** Registered by the owner, whose host has enrolled and is linked, and approved. */
export async function bringMachine(api: Api, { key }: ApiAccount, declared: object = {}, gpus = 1): Promise<string> {
  await api.call('POST', '/v1/community/supplier', { key });
  const body = { region: 'eu-west', price_per_hour: 2, ...declared };
  const { json } = await api.call('POST', '/v1/community/machines', { key, body });
  const { machine_id: id } = json['machine'] as { machine_id: string };
  let count = 0;
  const host = { public_key: id.padEnd(43, 'k'), inventory: inventoryOf(gpus, () => `${id}-${(count += 1)}`) };
  await api.world.rooms.supply.enroll({ token: String(json['enrollment_token']), ...host });
  await api.world.rooms.supply.approve(id);
  await linkHost(api.world, id);
  return id;
}

/** The id of an instance that ran on a machine of its own owner, with an outage in between, and that has ended. */
export async function rentalWithOutage(api: Api, owner: ApiAccount): Promise<string> {
  const { world } = api;
  await bringMachine(api, owner);
  const id = await world.run(owner);
  await watchFor(world, 180_000);
  world.probeAnswers.set(id, { ok: false, leg: 'banner', detail: 'closed' });
  await watchFor(world, 120_000);
  world.probeAnswers.clear();
  await watchFor(world, 30_000);
  await world.clock.advance(3_600_000);
  await world.end(owner, id);
  return id;
}
