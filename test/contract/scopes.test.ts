// Section 5 of the specification, scope by scope: what a key with nothing else may call, and that one with everything else may not.
import { afterAll, describe, expect, test } from 'vitest';
import { isInferencePath } from '../../shared/api/inference.ts';
import { SCOPES } from '../../control-plane/base/http/scopes.ts';
import { type Answer, openApi } from './api.ts';
import { expectRefused } from './refusals.ts';

const api = await openApi();
afterAll(() => api.close());

const OPENS: [scope: string, method: 'GET' | 'POST' | 'PATCH' | 'DELETE', url: string][] = [
  ['ssh_keys: read', 'GET', '/v1/ssh-keys'],
  ['ssh_keys: write', 'POST', '/v1/ssh-keys'],
  ['ssh_keys: write', 'DELETE', '/v1/ssh-keys/x'],
  ['instances: read', 'GET', '/v1/instances'],
  ['instances: read', 'GET', '/v1/instances/x'],
  ['instances: read', 'GET', '/v1/reservations'],
  ['instances: read', 'GET', '/v1/operations/x'],
  ['instances: write', 'POST', '/v1/instances'],
  ['instances: write', 'PATCH', '/v1/instances/x'],
  ['instances: write', 'DELETE', '/v1/instances/x'],
  ['billing: read', 'GET', '/v1/usage'],
  ['webhooks: write', 'POST', '/v1/webhook-endpoints'],
  ['deposits: read', 'GET', '/v1/deposits'],
  ['deposits: read', 'GET', '/v1/deposits/x'],
  ['deposits: write', 'POST', '/v1/deposits'],
  ['serverless:read', 'GET', '/v1/models'],
  ['serverless:read', 'GET', '/v1/models/x'],
];

// Specification 5: ssh_keys: read, ssh_keys: write, instances: read, instances: write, billing: read and webhooks: write open what they name, and
// nothing else does.
test.each(OPENS)('%s opens %s %s, and no other scope does', async (scope, method, url) => {
  const { key } = await api.account([scope]);
  // Past the endpoint: what is asked for is not there, or nothing was said.
  expect([200, 404, 422]).toContain((await api.call(method, url, { key })).status);
  const others = Object.keys(SCOPES).filter((other) => other !== scope.replace(' ', ''));
  expect(others).toHaveLength(Object.keys(SCOPES).length - 1);
  const { key: wrong } = await api.account(others);
  const refused = await api.call(method, url, { key: wrong });
  expect(expectRefused(url, refused, 'insufficient_scope').text).toBe(
    `This API key lacks the scope "${scope}". Use one that has it.`,
  );
});

test('every scope that can be granted opens a route', () => {
  const open = new Set<string>(api.routes.map(({ scope }) => scope));
  expect(Object.keys(SCOPES).filter((scope) => !open.has(scope))).toEqual([]);
});

// Specification 5: GET /v1/gpu-types and GET /v1/pricing need no authentication.
test.each(['/v1/gpu-types', '/v1/pricing'])('%s needs no key and accepts one', async (url) => {
  const { key } = await api.account(['billing: read']);
  for (const options of [{}, { key }, { key: 'svc_live_wrong' }]) {
    expect((await api.call('GET', url, options)).status).toBe(200);
  }
});

describe('a key with full_access', () => {
  // Specification 5: full_access reads usage, and opens nothing else of the platform.
  test('reads usage and may do nothing else on the platform', async () => {
    const { key } = await api.account(['full_access']);
    expect((await api.call('GET', '/v1/usage', { key })).status).toBe(200);
    const platform = OPENS.filter(([scope, , url]) => scope !== 'billing: read' && !isInferencePath(url));
    const answers = await Promise.all(platform.map(([, method, url]) => api.call(method, url, { key })));
    expect(answers.map(({ status }: Answer) => status)).toEqual(platform.map(() => 403));
  });

  test('has the scope of every inference endpoint', async () => {
    const { key } = await api.account(['full_access']);
    const inference = OPENS.filter(([, , url]) => isInferencePath(url));
    const answers = await Promise.all(inference.map(([, method, url]) => api.call(method, url, { key })));
    for (const { status } of answers) expect([200, 404, 422]).toContain(status);
    expect(inference.map(([scope]) => scope)).toContain('serverless:read');
  });
});

// Specification 5: serverless:read, serverless:write and billing:read are scopes of keys.
test.each(['serverless:read', 'serverless:write', 'billing:read', 'billing: read', 'instances:read'])(
  'a key may be made with the scope %s, as the specification writes it or without the space',
  async (scope) => {
    const { key } = await api.account(['api_keys: write', scope]);
    const made = await api.call('POST', '/v1/api-keys', { key, body: { name: 'x', scopes: [scope] } });
    expect(made).toMatchObject({ status: 201, json: { key: expect.stringMatching(/^svc_live_/) as string } });
  },
);
