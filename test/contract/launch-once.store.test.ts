// Fifty equal launches at once over real sockets: one operation, one container, one hold, and every caller gets the first answer.
import { afterAll, expect, test } from 'vitest';
import { gpusOf } from '../../control-plane/fleet/supply/store.ts';
import { desiredOf } from '../../control-plane/fleet/workloads/store.ts';
import { type Api, openApi } from './api.ts';
import { LAUNCH } from '../kit/world.ts';

const CALLERS = 50;
/** A virtual moment: shorter than the wait between two reads of a claim. */
const MOMENT_MS = 10;

const api: Api = await openApi();
afterAll(() => api.close());

// Specification 8: Equal launches at the same time are one launch with one answer.
test('fifty equal launches at once make one launch and get the same answer', async () => {
  const { machineId } = await api.world.machine({ gpus: 8 });
  const { orgId, key } = await api.account();
  const { port } = await api.http.listen({ host: '127.0.0.1', port: 0 });
  const send = async (): Promise<{ status: number; operationId: string | null; body: string }> => {
    const answer = await fetch(`http://127.0.0.1:${port}/v1/instances`, {
      method: 'POST',
      headers: { authorization: `Bearer ${key}`, 'content-type': 'application/json', 'idempotency-key': 'one launch' },
      body: JSON.stringify(LAUNCH),
    });
    return { status: answer.status, operationId: answer.headers.get('operation-id'), body: await answer.text() };
  };
  let waiting = true;
  const sent = Promise.all(Array.from({ length: CALLERS }, send)).finally(() => (waiting = false));
  while (waiting) await api.world.clock.advance(MOMENT_MS);
  const answers = await sent;

  // On a slow database some have waited as long as anybody should, and are refused with a time to retry.
  const [first] = answers.filter(({ status }) => status === 202);
  const late = answers.filter(({ status }) => status !== 202);
  expect(first?.operationId).toBe((JSON.parse(first?.body ?? '{}') as { operation_id?: string }).operation_id);
  expect(late.filter(({ status, body }) => status !== 409 || !body.includes('idempotency_key_in_use'))).toEqual([]);
  expect(answers.filter(({ status }) => status === 202)).toEqual(Array(CALLERS - late.length).fill(first));
  expect(await send()).toEqual(first);

  const { read } = api.world.db;
  expect(await api.world.rooms.instances.list(orgId, { count: CALLERS })).toHaveLength(1);
  expect((await desiredOf(read, machineId)).rows).toHaveLength(1);
  expect((await gpusOf(read, machineId)).filter(({ held_by: heldBy }) => heldBy !== null)).toHaveLength(1);
  // Ten minutes of two dollars an hour.
  const { json } = await api.call('GET', '/v1/balance', { key });
  expect(json['held_cents']).toBe(33);
  await api.world.verify();
});
