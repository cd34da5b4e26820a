// Operations (specification 2.6, 3.2, 4.5): what a caller sees of one from the request to its end.
import { expect, test } from 'vitest';
import { listedOfferings } from '../../control-plane/fleet/supply/offerings.ts';
import { LAUNCH } from '../kit/world.ts';
import type { Answer } from './api.ts';
import { api, openApiForEachTest, owner } from './api-of-test.ts';

openApiForEachTest();

const launch = (): Promise<Answer> => api.call('POST', '/v1/instances', { key: owner.key, body: LAUNCH });
const read = async (id: unknown): Promise<Answer['json']> => {
  const answer = await api.call('GET', `/v1/operations/${String(id)}`, { key: owner.key });
  expect(answer.status).toBe(200);
  return answer.json;
};
const now = (): string => new Date(api.world.clock.now()).toISOString();

test('a create answers 202 with the operation, pending and without a resource, and its id in the header', async () => {
  await api.world.machine();
  const accepted = await launch();
  expect(accepted.status).toBe(202);
  expect(accepted.json).toEqual({
    operation_id: expect.stringMatching(/^[0-9a-f]{8}-[0-9a-f]{4}-7[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}$/),
    kind: 'instance.create',
    state: 'pending',
    resource_id: null,
    created_at: now(),
    updated_at: now(),
    completed_at: null,
  });
  expect(accepted.headers['operation-id']).toBe(accepted.json['operation_id']);
});

test('it succeeds with the instance as its resource once that runs, and a delete has an operation of its own', async () => {
  await api.world.machine();
  const { json: created } = await launch();
  const { json: list } = await api.call('GET', '/v1/instances', { key: owner.key });
  const id = String(list.data?.[0]?.['id']);
  await api.world.observe(id, { phase: 'pulling' });
  await api.world.drive();
  const begun = await read(created['operation_id']);
  expect(begun).toMatchObject({ state: 'in_progress', resource_id: id, completed_at: null });
  await api.world.clock.advance(1000);
  await api.world.observe(id, { phase: 'running', host_key: 'ssh-ed25519 AAAA' });
  await api.world.drive();
  const done = await read(created['operation_id']);
  expect(done).toMatchObject({ state: 'succeeded', resource_id: id, completed_at: now(), updated_at: now() });
  expect(done['created_at']).toBe(created['created_at']);
  expect(done).not.toHaveProperty('error');
  const removal = await api.call('DELETE', `/v1/instances/${id}`, { key: owner.key });
  expect(removal).toMatchObject({ status: 202, json: { kind: 'instance.delete', resource_id: null } });
  expect(removal.headers['operation-id']).toBe(removal.json['operation_id']);
  expect(removal.json).toMatchObject({ state: 'pending', completed_at: null });
  expect(await read(removal.json['operation_id'])).toMatchObject({ state: 'in_progress', resource_id: id });
  await api.world.observe(id, { phase: 'stopped' });
  await api.world.drive();
  expect(await read(removal.json['operation_id'])).toMatchObject({ state: 'succeeded', resource_id: id });
  const again = await api.call('DELETE', `/v1/instances/${id}`, { key: owner.key });
  expect(again).toMatchObject({ status: 404, json: { code: 'not_found' } });
});

test('a DELETE by another key while it is stopping has an operation of its own, which ends with the instance', async () => {
  const { rooms } = api.world;
  const scopes = ['instances:read', 'instances:write'];
  const second = await rooms.accounts.createKey({ orgId: owner.orgId, name: 'second', scopes, expiresMs: null });
  const keys = [owner.key, second.key];
  await api.world.machine();
  await launch();
  const id = await newestId();
  await api.world.observe(id, { phase: 'running', host_key: 'ssh-ed25519 AAAA' });
  await api.world.drive();
  const remove = (key: string): Promise<Answer> => api.call('DELETE', `/v1/instances/${id}`, { key });
  const first = await Promise.all(keys.map(remove));
  expect(first.map(({ status }) => status)).toEqual([202, 202]);
  const operations = first.map(({ json }) => String(json['operation_id']));
  expect(new Set(operations).size).toBe(2);
  // Each key is answered with its own as often as it asks, and sees no other.
  const again = await Promise.all(keys.map(remove));
  expect(again.map(({ status, json }) => [status, json['operation_id']])).toEqual(operations.map((op) => [202, op]));
  const seenBy = (key: string, op: string): Promise<Answer> => api.call('GET', `/v1/operations/${op}`, { key });
  expect((await seenBy(second.key, operations[0] ?? '')).status).toBe(404);
  for (const [i, op] of operations.entries())
    expect((await seenBy(keys[i] ?? '', op)).json).toMatchObject({ state: 'in_progress', resource_id: id });
  await api.world.observe(id, { phase: 'stopped' });
  await api.world.drive();
  for (const [i, op] of operations.entries())
    expect((await seenBy(keys[i] ?? '', op)).json).toMatchObject({ state: 'succeeded', resource_id: id });
  expect((await remove(second.key)).status).toBe(404);
});

test('a DELETE while the platform ends the rental is followed by an operation that ends with it', async () => {
  await api.world.machine();
  await api.call('POST', '/v1/instances', { key: owner.key, body: { ...LAUNCH, auto_terminate_hours: 1 } });
  const id = await newestId();
  await api.world.observe(id, { phase: 'running', host_key: 'ssh-ed25519 AAAA' });
  await api.world.drive();
  await api.world.clock.advance(3_600_000);
  await api.world.drive();
  const { status, json } = await api.call('DELETE', `/v1/instances/${id}`, { key: owner.key });
  expect(status).toBe(202);
  expect(await read(json['operation_id'])).toMatchObject({ state: 'in_progress', resource_id: id });
  await api.world.observe(id, { phase: 'stopped' });
  await api.world.drive();
  expect(await read(json['operation_id'])).toMatchObject({ state: 'succeeded', resource_id: id });
});

test('one that fails says why with a code and in words', async () => {
  await api.world.machine();
  await launch();
  const { json: created } = await launch();
  for (let i = 0; i < 20; i += 1) {
    await api.world.clock.advance(60_000);
    await api.world.drive();
  }
  const failed = await read(created['operation_id']);
  expect(failed).toMatchObject({
    state: 'failed',
    error: { code: 'no_capacity', detail: expect.stringMatching(/\w/) },
  });
  expect(failed['completed_at']).not.toBeNull();
});

/** The instance that was launched last. */
const newestId = async (): Promise<string> => {
  const { json } = await api.call('GET', '/v1/instances', { key: owner.key });
  return String(json.data?.[0]?.['id']);
};

test('a launch that is deleted before it runs is cancelled, without an error and with its instance', async () => {
  await api.world.machine();
  const { json: created } = await launch();
  const id = await newestId();
  const removal = await api.call('DELETE', `/v1/instances/${id}`, { key: owner.key });
  const cancelled = await read(created['operation_id']);
  expect(cancelled).toMatchObject({ state: 'cancelled', resource_id: id, completed_at: now() });
  expect(cancelled).not.toHaveProperty('error');
  expect(await read(removal.json['operation_id'])).toMatchObject({ state: 'succeeded', completed_at: now() });
});

test('hosts that all reject the placement are operation_failed, with what went wrong on the last', async () => {
  await api.world.machine();
  const { json: created } = await launch();
  await api.world.observe(await newestId(), {
    phase: 'failed',
    failure_code: 'start_failed',
    detail: 'no such runtime',
  });
  await api.world.drive();
  expect(await read(created['operation_id'])).toMatchObject({
    state: 'failed',
    error: {
      code: 'operation_failed',
      detail: expect.stringMatching(/^On the chosen host, no such runtime\. No offering/),
    },
  });
});

test('a pinned offering that goes is offering_unavailable; one that is merely full says so, and nothing else is tried', async () => {
  const { machineId } = await api.world.machine();
  const [first] = await listedOfferings(api.world.db.read, { count: 1 });
  await api.world.machine();
  const pinned = (): Promise<Answer> =>
    api.call('POST', '/v1/instances', { key: owner.key, body: { ...LAUNCH, offering_id: first?.id } });
  const { json: gone } = await pinned();
  const { json: full } = await pinned();
  await api.world.drive();
  expect(await read(full['operation_id'])).toMatchObject({
    state: 'failed',
    error: {
      code: 'no_capacity',
      detail: expect.stringMatching(
        /0 of 1 GPUs free, at \$2\.00 an hour each\..*tried nowhere.*Leave offering_id out/,
      ),
    },
  });
  await api.world.rooms.supply.setOnline(machineId, false);
  await api.world.clock.advance(61_000);
  await api.world.drive();
  expect(await read(gone['operation_id'])).toMatchObject({
    state: 'failed',
    error: { code: 'offering_unavailable', detail: expect.stringMatching(/did not answer.*is not listed any more/) },
  });
});

test('an id that is none is 404', async () => {
  for (const id of ['x', '00000000-0000-7000-8000-000000000000']) {
    const answer = await api.call('GET', `/v1/operations/${id}`, { key: owner.key });
    expect(answer).toMatchObject({ status: 404, json: { code: 'not_found' } });
  }
});
