// `svc instance metrics` and `svc machine metrics`.
import { expect, test } from 'vitest';
import { findInstance } from '../../../control-plane/rental/instances/store.ts';
import { bringMachine } from '../../contract/suppliers.ts';
import { containerSample, gpuSample, metricsSample } from '../../kit/samples.ts';
import { api, openSvcForEachTest, owner, svcOf } from './svc-of-test.ts';

openSvcForEachTest();

async function measured(): Promise<{ machineId: string; instanceId: string; next(percent: number): Promise<void> }> {
  const machineId = await bringMachine(api, owner);
  const instanceId = await api.world.run(owner);
  await api.call('PATCH', `/v1/instances/${instanceId}`, { key: owner.key, body: { name: 'trainer' } });
  const workloadId = (await findInstance(api.world.db.read, instanceId))?.workload_id ?? '';
  const next = async (percent: number): Promise<void> => {
    const { fleetMetrics } = api.world.rooms;
    api.world.clock.jump(60_000);
    const gpus = [gpuSample('GPU-a', { workload_id: workloadId, utilization_percent: percent })];
    const containers = [containerSample(workloadId)];
    fleetMetrics.take(machineId, metricsSample(api.world.clock.monotonicMs(), { gpus, containers }));
    api.world.clock.jump(60_000);
    await fleetMetrics.tick();
  };
  return { machineId, instanceId, next };
}

test('shows the newest figures of an instance by its name, and of a machine', async () => {
  const { machineId, next } = await measured();
  await next(73);
  const ofInstance = await svcOf().run('instance', 'metrics', 'trainer');
  expect(ofInstance).toMatchObject({ code: 0, stderr: '' });
  expect(ofInstance.stdout).toMatch(/^INDEX +UTILIZATION_PERCENT.*\n0 +73 +70000 +11000 +650\.5/);
  expect(ofInstance.stdout).toMatch(/memory_limit_bytes +2000\n/);
  const ofMachine = await svcOf().run('machine', 'metrics', machineId);
  expect(ofMachine.stdout).toMatch(/\n0 +73 /);
  expect(ofMachine.stdout).toMatch(/disk_total_bytes +400\n/);
});

test('prints the document of the API with --json, and the ids of the GPUs with --quiet', async () => {
  const { instanceId, next } = await measured();
  await next(73);
  const json = await svcOf().run('instance', 'metrics', instanceId, '--json');
  expect(JSON.parse(json.stdout)).toMatchObject({ instance_id: instanceId, latest: { gpus: [{ uuid: 'GPU-a' }] } });
  expect((await svcOf().run('instance', 'metrics', instanceId, '-q')).stdout).toBe('GPU-a\n');
});

test('says so if there are no figures, and ends with 3 for what does not exist', async () => {
  const { instanceId } = await measured();
  expect(await svcOf().run('instance', 'metrics', instanceId)).toEqual({
    code: 0,
    stdout: '',
    stderr: 'There are no figures of the last minutes.\n',
  });
  expect((await svcOf().run('machine', 'metrics', 'x')).code).toBe(3);
});

test('shows new figures every second with --watch, until it is interrupted', async () => {
  const { instanceId, next } = await measured();
  await next(1);
  let percent = 1;
  const svc = svcOf({
    onSleep: async () => {
      percent += 1;
      if (percent > 3) return svc.interrupt();
      await next(percent);
    },
  });
  const { code, stdout } = await svc.run('instance', 'metrics', instanceId, '--watch');
  expect(code).toBe(0);
  expect([...stdout.matchAll(/^0 +(\d+)/gm)].map(([, shown]) => shown)).toEqual(['1', '2', '3']);
});

test('--watch goes on while the API is away, and says so once', async () => {
  const { instanceId, next } = await measured();
  await next(1);
  let reads = 0;
  const svc = svcOf({
    fetch: async (url, init) => {
      if (!new Request(url).url.endsWith('/metrics')) return fetch(url, init);
      reads += 1;
      if (reads > 10) svc.interrupt();
      // The client repeats each of them three times itself.
      return reads > 1 && reads < 10 ? new Response(null, { status: 502 }) : fetch(url, init);
    },
  });
  const { code, stdout, stderr } = await svc.run('instance', 'metrics', instanceId, '--watch');
  expect({ code, stderr }).toEqual({ code: 0, stderr: 'The API cannot be reached. Asking again until it answers.\n' });
  expect(stdout.match(/^INDEX/gm)).toHaveLength(2);
});

test('--watch also ends without an error if it is interrupted during a request', async () => {
  const { instanceId } = await measured();
  const svc = svcOf({
    fetch: (url, init) => {
      svc.interrupt();
      return fetch(url, init);
    },
  });
  const { code, stderr } = await svc.run('instance', 'metrics', instanceId, '--watch');
  expect({ code, stderr }).toEqual({ code: 0, stderr: '' });
});
