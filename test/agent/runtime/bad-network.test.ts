// Networks when something goes wrong: the engine cannot remove one, as after a crash, or the only container goes right after its start.
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

test('the network of the next container outlasts the last one, also if that goes before the next sweep', async () => {
  const script = await openScriptedEngine();
  const engine = openDocker({ socketPath: script.socketPath, machineId: 'm-1' });
  const made = (): string[] =>
    script.asked.flatMap(({ line, body }) =>
      line === 'POST /networks/create' ? [(body as { Name: string }).Name] : [],
    );
  const networks = (...others: string[]): void => {
    // The engine is asked before and after it has made a network.
    const listed = { toJSON: () => [...others, ...made()].map((Name) => ({ Name, Id: Name })) };
    script.answers.set('GET /networks', { body: listed });
  };
  const container = { Id: 'c-1', State: 'running', Labels: {}, Mounts: [], HostConfig: { NetworkMode: 'net-1' } };
  script.answers.set('GET /containers/json', { body: [container] });
  networks('net-1');
  await engine.keepSpareNetwork();
  script.answers.set('GET /containers/json', { body: [] });
  networks();
  expect(await engine.hasItsData()).toBe(true);
  await script.close();
});
