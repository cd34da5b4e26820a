// What every attack must leave true: the customer pays for the whole time in which the attacked rental ran, and no outage was seen.
import { expect } from 'vitest';
import { UsageRow } from '../../shared/api/billing.ts';
import { InstanceEvent } from '../../shared/api/instance-journal.ts';
import type { Instance } from '../../shared/api/instance.ts';
import { pageSchema } from '../../shared/api/page.ts';
import { type ApiClient, terminate } from '../kit/api-client.ts';

/** Ends the rental, and expects that it was charged for all its time, to a second. */
export async function endChargedThroughout(api: ApiClient, instance: Instance): Promise<void> {
  const lived = (Date.now() - Date.parse(instance.ready_at ?? '')) / 1000;
  await terminate(api, instance.id);
  const { data: usage } = await api.get('/usage?bucket=day', pageSchema(UsageRow));
  const charged = usage.filter((row) => row.instance_id === instance.id).reduce((sum, row) => sum + row.gpu_seconds, 0);
  expect(charged).toBeGreaterThan(lived - 1);
  const { data: events } = await api.get(`/instances/${instance.id}/events`, pageSchema(InstanceEvent));
  expect(events.map(({ type }) => type)).not.toContain('instance.unreachable');
}
