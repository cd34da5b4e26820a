// Suppliers as tests of the API need them: machines of an organisation, on offer.
import { inventoryOf, linkHost } from '../kit/machines.ts';
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
