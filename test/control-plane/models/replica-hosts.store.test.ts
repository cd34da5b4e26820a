// A host that dies takes all its replicas with it. Others are started at once on another machine.
import { expect, test } from 'vitest';
import { sql } from '../../../control-plane/base/db/db.ts';
import { findPool } from '../../../control-plane/models/replicas/store.ts';
import { findInstance } from '../../../control-plane/rental/instances/store.ts';
import { api } from '../../contract/api-of-test.ts';
import { live, loop, openReplicasForEachTest, POOL, startAll, tick } from './replica-world.ts';

const REPLICAS = 6;
openReplicasForEachTest(() => ({ min_replicas: REPLICAS, max_replicas: 8, max_open_requests: 1 }));

/** A machine of eight GPUs that the operator trusts. */
async function host(dollars: number): Promise<string> {
  const { machineId } = await api.world.machine({ dollars, gpus: 8 });
  await api.world.rooms.supply.setTrusted(machineId, true);
  return machineId;
}

test.each(['ready', 'starting'] as const)(
  'six replicas that are %s on a host that dies start again on another one within seconds',
  async (state) => {
    const first = await host(2);
    await loop('model-replicas');
    await api.world.drive();
    if (state === 'ready') {
      await startAll();
      await tick();
    }
    const lost = await live();
    expect(lost.map((replica) => replica.state)).toEqual(Array.from({ length: REPLICAS }, () => state));
    const second = await host(3);
    await api.world.db.tx('test.host', async (tx) => {
      await tx.run(
        sql`update instances set status = 'error', status_reason = 'the host is gone' where machine_id = ${first}`,
      );
      await tx.run(sql`update model_replicas set due_ms = 0 where state <> 'ended'`);
    });
    for (let seconds = 0; seconds < 10; seconds += 1) await tick(1_000);
    const started = await live();
    expect(started).toHaveLength(REPLICAS);
    expect(started.filter(({ id }) => lost.some((replica) => replica.id === id))).toEqual([]);
    const instances = await Promise.all(
      started.map(({ instance_id: id }) => findInstance(api.world.db.read, id ?? '')),
    );
    expect(new Set(instances.map((instance) => instance?.machine_id))).toEqual(new Set([second]));
    expect((await findPool(api.world.db.read, POOL))?.failures).toBeLessThanOrEqual(state === 'ready' ? 0 : 2);
  },
);
