// SSH keys (specification 2.5, 4.2, 7.2) where they meet instances: which may be named, and what deleting one in use does.
import { expect, test } from 'vitest';
import type { Query } from '../../control-plane/base/db/db.ts';
import { endpointAccess } from '../../control-plane/rental/edge/access.ts';
import type { InstanceRow } from '../../control-plane/rental/instances/store.ts';
import { KEYS } from '../control-plane/base/accounts/ssh-key-samples.ts';
import { LAUNCH } from '../kit/world.ts';
import { type Answer, made } from './api.ts';
import { api, openApiForEachTest, owner } from './api-of-test.ts';

openApiForEachTest();

async function register(line: string, account = owner): Promise<string> {
  const body = { name: 'laptop', public_key: line };
  const made = await api.call('POST', '/v1/ssh-keys', { key: account.key, body });
  expect(made.status).toBe(201);
  // Keys are shown in the order of their birth.
  await api.world.clock.advance(1);
  return String(made.json['id']);
}
const launch = (keyIds: string[] | undefined, more: object = {}): Promise<Answer> => {
  const chosen = keyIds === undefined ? {} : { ssh_key_ids: keyIds };
  return api.call('POST', '/v1/instances', { key: owner.key, body: { ...LAUNCH, ...chosen, ...more } });
};
/** The keys that somebody who connects to the instance now is let in with. */
async function keysOfEndpoint(instanceId: string): Promise<string[] | undefined> {
  const { db, rooms } = api.world;
  const keysOf = (query: Query, { org_id: orgId, request }: InstanceRow): Promise<string[]> =>
    rooms.sshKeys.linesOf(query, orgId, request.ssh_key_ids ?? null);
  return (await endpointAccess(instanceId, { db, endpoints: rooms.endpoints, keysOf }))?.authorizedKeys;
}
async function runningInstance(keyIds: string[] | undefined): Promise<string> {
  await api.world.machine();
  return api.world.run(owner, keyIds === undefined ? {} : { ssh_key_ids: keyIds });
}
const bare = (line: string): string => line.split(' ').slice(0, 2).join(' ');

// Specification 4.2: A key in use can be deleted.
test('a key that an instance uses can be deleted, which takes effect at the next connection', async () => {
  const [ed, ec] = [await register(KEYS.ed.line), await register(KEYS.ec256.line)];
  const id = await runningInstance([ed, ec]);
  expect(await keysOfEndpoint(id)).toEqual([bare(KEYS.ed.line), bare(KEYS.ec256.line)]);
  expect((await api.call('DELETE', `/v1/ssh-keys/${ed}`, { key: owner.key })).status).toBe(204);
  expect(await keysOfEndpoint(id)).toEqual([bare(KEYS.ec256.line)]);
  expect((await api.call('DELETE', `/v1/ssh-keys/${ec}`, { key: owner.key })).status).toBe(204);
  expect(await keysOfEndpoint(id)).toEqual([]);
  expect((await api.call('GET', `/v1/instances/${id}`, { key: owner.key })).json['status']).toBe('running');
});

// Specification 4.3: ssh_key_ids are the keys that are installed.
test('a launch with ssh_key_ids admits those keys and no others', async () => {
  const [, ec] = [await register(KEYS.ed.line), await register(KEYS.ec256.line)];
  expect(await keysOfEndpoint(await runningInstance([ec]))).toEqual([bare(KEYS.ec256.line)]);
  expect(await keysOfEndpoint(await runningInstance([]))).toEqual([]);
});

test('a launch without ssh_key_ids admits all keys of the organisation, also those that come later', async () => {
  await register(KEYS.ed.line);
  const id = await runningInstance(undefined);
  await register(KEYS.ec256.line);
  expect(await keysOfEndpoint(id)).toEqual([bare(KEYS.ed.line), bare(KEYS.ec256.line)]);
});

// Specification 4.2: At least one SSH key is needed for SSH access.
test('a launch without any key is accepted, and nobody may connect until one is registered', async () => {
  const id = await runningInstance(undefined);
  expect(await keysOfEndpoint(id)).toEqual([]);
  await register(KEYS.ed.line);
  expect(await keysOfEndpoint(id)).toEqual([bare(KEYS.ed.line)]);
});

// Specification 5: An ssh_key_ids entry of another organisation is refused with 403 ssh_keys/org_mismatch.
// Specification 7.2: ssh_keys/org_mismatch: 403 for a key of another organisation, in all tiers.
test("another organisation's key is 403 ssh_keys/org_mismatch for every tier, and nothing is launched", async () => {
  const foreign = await register(KEYS.ed.line, await api.account());
  await api.world.machine();
  const before = await made(api, owner);
  const own = await register(KEYS.ec256.line);
  const refused = await launch([own, foreign]);
  expect(refused).toMatchObject({ status: 403, json: { code: 'ssh_keys/org_mismatch' } });
  expect(refused.json['detail']).toContain(foreign);
  expect(await launch([foreign], { tier: 'spot', image: undefined })).toMatchObject({ status: 403 });
  expect(await launch([foreign], { tier: 'reserved' })).toMatchObject({ status: 403 });
  expect(await made(api, owner)).toEqual(before);
});

test('an unknown or deleted key cannot be named in a launch', async () => {
  const gone = await register(KEYS.ed.line);
  await api.call('DELETE', `/v1/ssh-keys/${gone}`, { key: owner.key });
  await api.world.machine();
  const refused = await launch([gone]);
  expect(refused).toMatchObject({ status: 422, json: { errors: [{ field: 'ssh_key_ids[0]' }] } });
});

// Specification 4.2: DELETE /v1/ssh-keys/{id} of an already gone key is 404 not_found.
// Specification 4.2: Deleting an already gone key is 404 not_found.
// Specification 7.2: not_found: deleting an already gone SSH key.
test('the deletion of a key that is gone is 404 not_found', async () => {
  const id = await register(KEYS.ed.line);
  await api.call('DELETE', `/v1/ssh-keys/${id}`, { key: owner.key });
  const again = await api.call('DELETE', `/v1/ssh-keys/${id}`, { key: owner.key });
  expect(again).toMatchObject({ status: 404, json: { code: 'not_found', status: 404 } });
  expect(again.headers['content-type']).toBe('application/problem+json');
});
