// Launches while the process ends slowly: its public ports are closed, so nobody could log in.
import { expect, test } from 'vitest';
import { ANYWHERE } from '../../control-plane/rental/instances/launch.ts';
import { LAUNCH } from '../kit/world.ts';
import { openApi } from './api.ts';

test('a launch is refused while the process ends slowly, and its Idempotency-Key can be used again; all else goes on', async () => {
  let endsSlowly = false;
  const api = await openApi({ endsSlowly: () => endsSlowly });
  await api.world.machine({ gpus: 8 });
  const who = await api.account();
  const { key } = who;
  const launch = { key, body: LAUNCH, headers: { 'idempotency-key': 'again' } };
  const runs = await api.world.run(who);

  endsSlowly = true;
  const refused = await api.call('POST', '/v1/instances', launch);
  expect(refused.status).toBe(503);
  expect(refused.json).toMatchObject({ code: 'unavailable', detail: 'The service restarts. Send the request again.' });
  expect(refused.headers['retry-after']).toBe('10');
  expect((await api.call('GET', `/v1/instances/${runs}`, { key })).status).toBe(200);
  expect((await api.call('DELETE', `/v1/instances/${runs}`, { key })).status).toBe(202);
  // The loops of models go on, and need no public port.
  await api.world.rooms.instances.create(who, LAUNCH, async () => undefined, ANYWHERE);

  endsSlowly = false;
  expect((await api.call('POST', '/v1/instances', launch)).status).toBe(202);
  await api.world.verify();
  await api.close();
});
