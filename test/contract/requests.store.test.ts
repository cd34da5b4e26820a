// Random requests to every route: allowed ones never cause an internal error, and forbidden ones are refused with the field.
import fc from 'fast-check';
import { afterAll, beforeEach, describe, expect, inject, test } from 'vitest';
import type { Route } from '../../control-plane/base/http/route.ts';
import { type Answer, type Api, type ApiAccount, type CallOptions, openApi } from './api.ts';
import { brokenOnce, inputSchema, valid } from './requests.ts';
import { noteRead, offlineDeposits } from '../kit/deposits.ts';
import { overTheWire } from '../kit/machines.ts';
import { addPerson, cookieOf, type Person } from '../kit/people.ts';
import { LAUNCH } from '../kit/world.ts';
import { refusalOf } from './refusals.ts';
import { makerFor, urlOf, urlWith } from './resources.ts';

/** A request costs several times as much on PostgreSQL. */
const FEW = inject('postgresUrl') === undefined ? 40 : 15;
const RUNS = process.env['SOAK'] === '1' ? 1000 : FEW;

const api: Api = await openApi({ settings: { deposits: offlineDeposits() } });
for (const chain of ['ethereum', 'base'] as const) await noteRead(api.world, chain);
let owner: ApiAccount;
let person: Person;
// A new one each time: what an organisation may have of a kind is soon reached by random requests.
beforeEach(async () => {
  owner = await api.account();
  person = await addPerson(api.world, { orgId: owner.orgId, role: 'owner' });
});
afterAll(() => api.close());

const withBody = api.routes.filter(({ body }) => body !== undefined);
const createInstance = withBody.find(({ operationId }) => operationId === 'createInstance');
/** The pages of the console take any query: links of other programs lead to them. */
const withQuery = api.routes.filter(({ query, path }) => query !== undefined && path.startsWith('/v1/'));
const named = (routes: readonly Route[]): [string, Route][] => routes.map((route) => [route.operationId, route]);

/** Each is a resource that exists, so that the request gets past the path. */
async function urlOfOne({ path }: Route): Promise<string> {
  return urlOf(path, (await makerFor(path)?.(api, owner)) ?? '');
}
const sendBody = (route: Route, url: string, body: unknown): Promise<Answer> =>
  api.call(route.method, url, { ...credentialsFor(route), body });
const credentialsFor = ({ scope }: Route): CallOptions =>
  scope === 'none' ? {} : scope === 'session' ? { as: person } : { key: owner.key };
const sendQuery = (url: string, query: object): Promise<Answer> => {
  const texts = Object.entries(query).map(([name, value]): [string, string] => [name, String(value)]);
  return api.call('GET', `${url}?${new URLSearchParams(texts).toString()}`, { key: owner.key });
};

function expectNoFault({ path }: Route, answer: Answer): void {
  expect(answer.status).toBeLessThan(500);
  if (answer.status >= 400) refusalOf(path, answer);
}

function expectNamed({ path }: Route, answer: Answer, field: string): void {
  const { code, fields } = refusalOf(path, answer);
  expect(['validation_failed', 'unsupported_parameter']).toContain(code);
  expect(fields.map((each) => each.split(/[.[]/)[0])).toContain(field);
}

describe('bodies', () => {
  // Specification 7.1: Whatever a platform endpoint refuses is a problem document of application/problem+json.
  test.each(named(withBody))(
    '%s: a body that the document allows never causes an internal error',
    async (_id, route) => {
      const url = await urlOfOne(route);
      const bodies = valid(inputSchema(route.body) ?? {});
      await fc.assert(
        fc.asyncProperty(bodies, async (body) => expectNoFault(route, await sendBody(route, url, body))),
        { seed: 11, numRuns: RUNS },
      );
    },
  );

  test('most random bodies for webhook endpoints are accepted, so that the random requests get past the checks of the body', async () => {
    const { key } = await api.account();
    const route = withBody.find(({ operationId }) => operationId === 'createWebhookEndpoint');
    const bodies = fc.sample(valid(inputSchema(route?.body) ?? {}), { seed: 17, numRuns: 20 });
    const answers = await Promise.all(bodies.map((body) => api.call('POST', '/v1/webhook-endpoints', { key, body })));
    expect(answers.filter(({ status }) => status === 201).length).toBeGreaterThan(15);
  });

  // Specification 7.2: Whatever breaks a bound is refused, and the field is named.
  test.each(named(withBody))(
    '%s: a body that the document forbids is refused, and the field is named',
    async (_id, route) => {
      const url = await urlOfOne(route);
      const bodies = brokenOnce(inputSchema(route.body) ?? {}, { asText: false });
      await fc.assert(
        fc.asyncProperty(bodies, async ({ value, field }) =>
          expectNamed(route, await sendBody(route, url, value), field),
        ),
        { seed: 12, numRuns: RUNS },
      );
    },
  );

  // Specification 8: Whatever a launch holds that is taken, its host can decode it.
  test('the host can decode the workload of every accepted launch', async () => {
    const { machineId } = await api.world.machine({ gpus: 16 });
    const { env = {}, cmd = {}, entrypoint = {}, name = {} } = inputSchema(createInstance?.body)?.properties ?? {};
    const texts = fc.record({ env: valid(env), cmd: valid(cmd), entrypoint: valid(entrypoint), name: valid(name) });
    const statuses: number[] = [];
    await fc.assert(
      fc.asyncProperty(texts, async (body) => {
        const answer = await api.call('POST', '/v1/instances', { key: owner.key, body: { ...LAUNCH, ...body } });
        statuses.push(answer.status);
        overTheWire(await api.world.rooms.workloads.desired(machineId));
      }),
      { seed: 18, numRuns: RUNS },
    );
    expect(statuses.filter((status) => status === 202).length).toBeGreaterThan(RUNS / 4);
  });

  // Specification 7.3: No request makes an internal error.
  // Specification 7.1: Whatever an inference endpoint refuses is the envelope.
  test.each(named(withBody))('%s: random JSON never causes an internal error', async (_id, route) => {
    const url = await urlOfOne(route);
    await fc.assert(
      fc.asyncProperty(fc.jsonValue({ stringUnit: 'binary' }), async (body) =>
        expectNoFault(route, await sendBody(route, url, body)),
      ),
      { seed: 13, numRuns: RUNS },
    );
  });

  test.each([
    ['arrays', '['.repeat(100_000) + ']'.repeat(100_000)],
    ['objects', '{"a":'.repeat(40_000) + '1' + '}'.repeat(40_000)],
    ['arrays in a field', `{"name": ${'['.repeat(100_000)}${']'.repeat(100_000)}}`],
  ])('%s nested as deep as a body can be are refused', async (_what, payload) => {
    for (const { method, path, scope } of withBody.filter((route) => route.scope !== 'none')) {
      const reply = await api.http.inject({
        method,
        url: urlWith(path, 'x'),
        headers: {
          ...(scope === 'session' ? cookieOf(person) : { authorization: `Bearer ${owner.key}` }),
          'content-type': 'application/json',
          'idempotency-key': api.ids.secret(8),
        },
        payload,
      });
      expect([400, 422]).toContain(reply.status);
    }
  });
});

describe('queries', () => {
  test.each(named(withQuery))(
    '%s: a query that the document allows never causes an internal error',
    async (_id, route) => {
      const queries = valid(inputSchema(route.query) ?? {});
      await fc.assert(
        fc.asyncProperty(queries, async (query) => expectNoFault(route, await sendQuery(route.path, query as object))),
        { seed: 14, numRuns: RUNS },
      );
    },
  );

  test.each(named(withQuery))(
    '%s: a query that the document forbids is refused, and the field is named',
    async (_id, route) => {
      const queries = brokenOnce(inputSchema(route.query) ?? {}, { asText: true });
      await fc.assert(
        fc.asyncProperty(queries, async ({ value, field }) =>
          expectNamed(route, await sendQuery(route.path, value), field),
        ),
        { seed: 15, numRuns: RUNS },
      );
    },
  );
});

describe('paths', () => {
  const naming = api.routes.filter(({ path }) => path.includes('{'));
  test.each(named(naming))('%s: a random id never causes an internal error', async (_id, route) => {
    await fc.assert(
      fc.asyncProperty(fc.string({ unit: 'binary', minLength: 1, maxLength: 80 }), async (id) => {
        fc.pre(!/^\.{1,2}$/.test(id) && id.isWellFormed());
        const url = urlWith(route.path, encodeURIComponent(id));
        expectNoFault(route, await api.call(route.method, url, { key: owner.key }));
      }),
      { seed: 16, numRuns: RUNS },
    );
  });
});
