// What one customer may launch never keeps a host from hearing of the others: the largest launches, the longest image, many removals.
import { expect, test } from 'vitest';
import { raw, sql } from '../../control-plane/base/db/db.ts';
import {
  BODY_BYTES_MAX,
  GPUS_PER_MACHINE_MAX,
  LINK_DESIRED_BYTES_MAX,
  WORKLOADS_PER_MACHINE_MAX,
} from '../../shared/limits.ts';
import { overTheWire } from '../kit/machines.ts';
import { LAUNCH } from '../kit/world.ts';
import { type Answer, newestInstance, postLaunch } from './api.ts';
import { api, openApiForEachTest, owner } from './api-of-test.ts';

openApiForEachTest();

const launch = (body: object = {}): Promise<Answer> => postLaunch(api, owner, { ...LAUNCH, ...body });

/** A launch whose body is as large as a body may be, to the byte. */
function largest(): object {
  const text = 'x'.repeat(32_768);
  const env: Record<string, string> = { A: text, B: text, C: text };
  const cmd = [text, text, text, text];
  const restBytes = BODY_BYTES_MAX - JSON.stringify({ ...LAUNCH, cmd, env: { ...env, D: '' } }).length;
  return { cmd, env: { ...env, D: 'x'.repeat(restBytes) } };
}

// Specification 8: The largest launches fit into what a host is sent, so that nobody keeps it from hearing of others.
test('a launch of the largest body on each GPU of the largest machine fits into one message to the host', async () => {
  const { machineId } = await api.world.machine({ gpus: GPUS_PER_MACHINE_MAX });
  for (let count = 0; count < GPUS_PER_MACHINE_MAX; count += 1) expect((await launch(largest())).status).toBe(202);
  const desired = await api.world.rooms.workloads.desired(machineId);
  expect(overTheWire(desired).workloads).toHaveLength(GPUS_PER_MACHINE_MAX);
  const bytes = Buffer.byteLength(JSON.stringify(desired));
  expect(bytes).toBeGreaterThan(GPUS_PER_MACHINE_MAX * 0.99 * BODY_BYTES_MAX);
  expect(bytes).toBeLessThan(LINK_DESIRED_BYTES_MAX);
});

test('the longest accepted image reference reaches its host, with its digest', async () => {
  const { machineId } = await api.world.machine();
  const host = `${'h'.repeat(60)}.`.repeat(4);
  const image = `${host}example/${'r'.repeat(255)}`;
  expect((await launch({ image: `${image}:${'t'.repeat(511 - image.length)}` })).status).toBe(202);
  const desired = await api.world.rooms.workloads.desired(machineId);
  expect(overTheWire(desired).workloads[0]?.image.length).toBe(image.length + 72);
});

test('a host with as many containers as one message holds gets no new one until one of them is gone', async () => {
  const { machineId } = await api.world.machine({ gpus: 2 });
  expect((await launch(largest())).status).toBe(202);
  const id = String((await newestInstance(api, owner))['id']);
  await api.call('DELETE', `/v1/instances/${id}`, { key: owner.key });
  const copy = async (count: number): Promise<void> => {
    const columns = sql`machine_id, instance_id, state, spec, observed, created_ms, changed_ms`;
    const one = sql`select 'wl_' || ${raw(String(count))}, ${columns} from workloads where instance_id = ${id} limit 1`;
    await api.world.db.tx('test.copy', (tx) => tx.run(sql`insert into workloads (id, ${columns}) ${one}`));
  };
  for (let count = 1; count < WORKLOADS_PER_MACHINE_MAX; count += 1) await copy(count);
  const desired = await api.world.rooms.workloads.desired(machineId);
  expect(overTheWire(desired).workloads).toHaveLength(WORKLOADS_PER_MACHINE_MAX);
  // A workload that must go is sent without its command and variables.
  expect(JSON.stringify(desired).length).toBeLessThan(256 * 1024);

  const { json } = await launch();
  await api.world.drive();
  const operation = await api.call('GET', `/v1/operations/${String(json['operation_id'])}`, { key: owner.key });
  expect(operation.json).toMatchObject({ state: 'failed', error: { code: 'no_capacity' } });
  await api.world.observe(id, { phase: 'removed' });
  expect((await launch()).status).toBe(202);
  expect(await newestInstance(api, owner)).toMatchObject({ status: 'allocating', region: 'eu-west' });
});
