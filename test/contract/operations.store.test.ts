// Operations (specification 2.6, 3.2, 4.5): what a caller sees of one from the request to its end.
import { expect, test } from 'vitest';
import { listedOfferings } from '../../control-plane/fleet/supply/catalog.ts';
import { LAUNCH } from '../kit/world.ts';
import type { Answer } from './api.ts';
import { api, openApiForEachTest, owner } from './api-of-test.ts';
import { loseHost } from '../kit/machines.ts';

openApiForEachTest();

const launch = (): Promise<Answer> => api.call('POST', '/v1/instances', { key: owner.key, body: LAUNCH });
const read = async (id: unknown): Promise<Answer['json']> => {
  const answer = await api.call('GET', `/v1/operations/${String(id)}`, { key: owner.key });
  expect(answer.status).toBe(200);
  return answer.json;
};
const now = (): string => new Date(api.world.clock.now()).toISOString();

// Specification 2.6: operation_id is a UUID.
// Specification 2.6: kind is instance.create for a creation.
// Specification 2.6: resource_id is null at creation.
// Specification 2.6: The response to a create carries the operation id in Operation-Id.
// Specification 3.2: An accepted request makes an operation that is pending.
// Specification 4.3: POST answers 202 with Operation-Id and an operation that is pending and has no resource_id.
test('a launch answers 202 with the operation, pending and without a resource, and its id in the header', async () => {
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

// Specification 2.6: kind is instance.delete for a deletion.
// Specification 2.6: state is pending, in_progress or succeeded.
// Specification 2.6: resource_id is there once in_progress, and when succeeded.
// Specification 2.6: resource_id of a deletion is null while pending too.
// Specification 2.6: created_at stays, updated_at is the last change.
// Specification 2.6: error is absent from a success.
// Specification 2.6: The response to a delete carries the operation id in Operation-Id.
// Specification 3.2: pending goes to in_progress when work starts, and resource_id populates.
// Specification 3.2: in_progress goes to succeeded when the resource reaches its target state; completed_at set.
// Specification 4.5: GET /v1/operations/{id} answers the operation.
test('a launch succeeds with the instance as its resource once that runs, and a DELETE has an operation of its own', async () => {
  await api.world.machine();
  const { json: created } = await launch();
  const { json: list } = await api.call('GET', '/v1/instances', { key: owner.key });
  const id = String(list.data?.[0]?.['id']);
  await api.world.observe(id, { phase: 'pulling' });
  await api.world.drive();
  const begun = await read(created['operation_id']);
  expect(begun).toMatchObject({ state: 'in_progress', resource_id: id, completed_at: null });
  await api.world.clock.advance(1000);
  await api.world.start(id);
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

// Specification 4.3: DELETE by another key of the organisation is 202 too, with an operation of its own while it is stopping.
test('a DELETE by another key while the instance is stopping has an operation of its own, which ends with the instance', async () => {
  const { rooms } = api.world;
  const scopes = ['instances:read', 'instances:write'];
  const second = await rooms.accounts.createKey({ orgId: owner.orgId, name: 'second', scopes, expiresMs: null });
  const keys = [owner.key, second.key];
  await api.world.machine();
  await launch();
  const id = await newestId();
  await api.world.start(id);
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
  await api.world.start(id);
  await api.world.clock.advance(3_600_000);
  await api.world.drive();
  const { status, json } = await api.call('DELETE', `/v1/instances/${id}`, { key: owner.key });
  expect(status).toBe(202);
  expect(await read(json['operation_id'])).toMatchObject({ state: 'in_progress', resource_id: id });
  await api.world.observe(id, { phase: 'stopped' });
  await api.world.drive();
  expect(await read(json['operation_id'])).toMatchObject({ state: 'succeeded', resource_id: id });
});

// Specification 2.6: state is failed.
// Specification 2.6: A failed operation has error.code and error.detail.
// Specification 3.2: in_progress goes to failed when execution fails; error set.
test('a failed operation has an error code and an explanation', async () => {
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

// Specification 2.6: state is cancelled.
// Specification 2.6: error is absent from a cancellation.
// Specification 3.2: Any non-terminal operation goes to cancelled when its caller aborts it.
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

// Specification 2.6: A placement that all hosts reject fails with operation_failed.
// Specification 7.2: operation_failed: all suppliers rejected the placement.
test('a launch that all hosts reject is operation_failed, with the reason of the last host', async () => {
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

// Specification 4.3: A pinned offering that goes later fails the launch explicitly and never places elsewhere.
test('a launch on a pinned offering is offering_unavailable if the offering is gone, says so if it is full, and tries no other', async () => {
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
  await loseHost(api.world, machineId);
  await api.world.clock.advance(61_000);
  await api.world.drive();
  expect(await read(gone['operation_id'])).toMatchObject({
    state: 'failed',
    error: { code: 'offering_unavailable', detail: expect.stringMatching(/did not answer.*is not listed any more/) },
  });
});

// Specification 4.5: GET /v1/operations/{id} of an unknown id is 404 not_found.
test('an unknown operation is 404', async () => {
  for (const id of ['x', '00000000-0000-7000-8000-000000000000']) {
    const answer = await api.call('GET', `/v1/operations/${id}`, { key: owner.key });
    expect(answer).toMatchObject({ status: 404, json: { code: 'not_found' } });
  }
});
