// How the driver knows that an engine that lists no container has the same data as before: by a network that it had beside our containers.
import { afterEach, beforeEach, expect, test } from 'vitest';
import { openDocker } from '../../../agent/runtime/docker.ts';
import type { Engine } from '../../../agent/runtime/engine.ts';
import { openScriptedEngine, type ScriptedEngine } from './scripted-engine.ts';

let script: ScriptedEngine;
let engine: Engine;
beforeEach(async () => {
  script = await openScriptedEngine();
  engine = openDocker({ socketPath: script.socketPath, machineId: 'm' });
});
afterEach(() => script.close());

/** The engine has these networks of ours, and a container in the first one. */
const containerBeside = (networks: string[]): void => {
  const container = { Id: 'c', Labels: {}, HostConfig: { NetworkMode: networks[0] }, Mounts: [] };
  script.answers.set('GET /containers/json', { body: [container] });
  script.answers.set('GET /networks', { body: networks.map((Name) => ({ Name, Id: Name })) });
};
const emptyWith = (networks: string[]): void => {
  script.answers.set('GET /containers/json', { body: [] });
  script.answers.set('GET /networks', { body: networks.map((Name) => ({ Name, Id: Name })) });
};
/** The name of the network that the driver has made in advance. */
const spare = (): string => {
  const { body } = script.asked.findLast(({ line }) => line === 'POST /networks/create') ?? {};
  return (body as { Name: string }).Name;
};

test('the network in advance shows it, also after a sweep of the network of the container', async () => {
  containerBeside(['net-c']);
  await engine.keepSpareNetwork();
  containerBeside(['net-c', spare()]);
  await engine.keepSpareNetwork();
  emptyWith(['net-c', spare()]);
  await engine.keepSpareNetwork();
  expect(script.lines()).toContain('DELETE /networks/net-c');
  emptyWith([spare()]);
  expect(await engine.hasItsData()).toBe(true);
});

test('the network of the container shows it', async () => {
  containerBeside(['net-c']);
  await engine.keepSpareNetwork();
  emptyWith(['net-c']);
  expect(await engine.hasItsData()).toBe(true);
});

test.each([
  ['none of ours', []],
  ['one of ours that an earlier engine without the disk has left', ['net-old']],
])('an engine with %s may have lost its disk', async (_what, networks) => {
  containerBeside(['net-c']);
  await engine.keepSpareNetwork();
  emptyWith(networks);
  expect(await engine.hasItsData()).toBe(false);
});

test('a network that was never seen beside a container shows nothing', async () => {
  emptyWith([]);
  await engine.keepSpareNetwork();
  emptyWith([spare()]);
  await engine.keepSpareNetwork();
  expect(await engine.hasItsData()).toBe(false);
});
