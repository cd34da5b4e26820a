// A real engine and private images: pulled with a token or a login, and not without.
import { afterAll, beforeAll, expect, test } from 'vitest';
import { openDocker } from '../../../agent/runtime/docker.ts';
import type { Engine as AgentEngine } from '../../../agent/runtime/engine.ts';
import { parseReference } from '../../../control-plane/rental/launch/reference.ts';
import { openImages } from '../../../control-plane/rental/launch/images.ts';
import { systemClock } from '../../../shared/clock.ts';
import { type Engine, startEngine } from '../../kit/engine.ts';
import { scratchImage } from '../../kit/images.ts';
import { type Guarded, LOGIN, type Registry, startRegistry } from '../../kit/registry.ts';
import { startTokenServer, type TokenServer } from '../../kit/token-server.ts';

let registry: Registry;
let tokens: TokenServer;
let byToken: Guarded;
let byPassword: Guarded;
let engine: Engine;
let docker: AgentEngine;
let digest: string;

beforeAll(async () => {
  [registry, tokens, engine] = await Promise.all([startRegistry(), startTokenServer(), startEngine({})]);
  byToken = await registry.guarded(tokens.auth);
  byPassword = await registry.guarded({ kind: 'basic' });
  ({ digest } = await scratchImage(registry, { name: 'org/app' }));
  for (const { port } of [byToken, byPassword, tokens]) await engine.letThrough(port);
  docker = openDocker({ socketPath: engine.socketPath, machineId: 'm' });
});
afterAll(async () => {
  await engine.stop();
  await byToken.stop();
  await byPassword.stop();
  await tokens.stop();
  await registry.stop();
});

const pull = (image: string, login: Parameters<AgentEngine['pull']>[1]): Promise<void> =>
  docker.pull(image, login, () => undefined, new AbortController().signal);

test.each([
  ['a token', () => byToken, 'bearer'],
  ['the login, where the registry knows no tokens', () => byPassword, 'basic'],
])('is pulled with %s that the control plane has got, by its digest', async (_what, guarded, kind) => {
  const { host } = guarded();
  const image = `${host}/org/app@${digest}`;
  await expect(pull(image, null)).rejects.toThrow(/unauthorized|no basic auth|denied|authentication required/i);
  await expect(pull(image, { kind: 'basic', username: LOGIN.username, password: 'wrong' })).rejects.toThrow(
    /unauthorized/i,
  );

  const named = [byToken, byPassword, tokens].map((one) => ({ host: one.host, plainHttp: true }));
  const images = openImages(named, { clock: systemClock() });
  const login = await images.pullLogin(parseReference(image), LOGIN);
  expect(login?.kind).toBe(kind);
  await pull(image, login);
  expect(await docker.inspectImage(image)).toMatchObject({ digest });
  await images.close();
});

test('a private image that the engine has already is given out without any login, which is why the agent asks the control plane', async () => {
  await pull(`${byPassword.host}/org/app@${digest}`, null);
});
