// A network that the engine cannot remove, as Docker has them after a crash: the others are removed, and the next container has its spare.
import { expect, test } from 'vitest';
import { openDocker } from '../../../agent/runtime/docker.ts';
import { openScriptedEngine } from './scripted-engine.ts';

test('a network that cannot be removed keeps no other one from its removal, and the next container not from its spare', async () => {
  const script = await openScriptedEngine();
  const engine = openDocker({ socketPath: script.socketPath, machineId: 'm-1' });
  script.answers.set('GET /networks', { body: ['net-bad', 'net-old'].map((Name) => ({ Name, Id: Name })) });
  script.answers.set('DELETE /networks/net-bad', { status: 500 });
  const kept = await engine.keepSpareNetwork().then(
    () => 'kept',
    () => 'failed',
  );
  await script.close();
  expect(script.lines()).toEqual([
    'GET /networks',
    'GET /containers/json',
    'DELETE /networks/net-bad',
    'DELETE /networks/net-old',
    'POST /networks/create',
    'GET /networks',
    'GET /containers/json',
  ]);
  // The failure is shown to the operator.
  expect(kept).toBe('failed');
});
