// Every list whose entries customers make: pages hold still while entries come and go between them.
import { afterAll, expect, test } from 'vitest';
import type { Route } from '../../control-plane/base/http/route.ts';
import { seededRng } from '../../shared/rng.ts';
import { type Api, type ApiAccount, openApi } from './api.ts';
import { inputSchema } from './requests.ts';
import { makerFor } from './resources.ts';

const ENTRIES = 7;
const PAGE = 2;

const api: Api = await openApi();
afterAll(() => api.close());

/** Its maker always makes the same key, and the list has a walk of its own. */
const ELSEWHERE = ['/v1/ssh-keys'];
const lists = api.routes.filter(
  ({ method, path, query }) =>
    method === 'GET' &&
    inputSchema(query)?.properties?.['cursor'] !== undefined &&
    makerFor(`${path}/{id}`) !== undefined &&
    !ELSEWHERE.includes(path),
);

function idOf(entry: Record<string, unknown>): string {
  return String(entry['id'] ?? entry['machine_id']);
}

async function make({ path }: Route, owner: ApiAccount): Promise<string> {
  return (await makerFor(`${path}/{id}`)?.(api, owner)) ?? '';
}

test('there are such lists', () => {
  expect(lists.map(({ operationId }) => operationId)).toEqual(
    expect.arrayContaining(['listInstances', 'listApiKeys', 'listRegistryCredentials', 'listWebhookEndpoints']),
  );
});

test.each(lists.map((route): [string, Route] => [route.operationId, route]))(
  '%s skips and repeats nothing while entries are made and deleted between its pages',
  async (_id, route) => {
    const owner = await api.account();
    const rng = seededRng(9);
    const there = new Set<string>();
    for (let i = 0; i < ENTRIES; i += 1) {
      there.add(await make(route, owner));
      // Some have the same time.
      await api.world.clock.advance(i % 2);
    }
    const seen: string[] = [];
    for (let cursor: string | null | undefined = ''; cursor !== null && cursor !== undefined;) {
      const from = cursor === '' ? '' : `&cursor=${encodeURIComponent(cursor)}`;
      const { json } = await api.call('GET', `${route.path}?limit=${PAGE}${from}`, { key: owner.key });
      seen.push(...(json.data ?? []).map(idOf));
      cursor = json.next_cursor;
      await make(route, owner);
      const leaving = [...there][Math.floor(rng.float() * there.size)] ?? '';
      await api.call('DELETE', `${route.path}/${leaving}`, { key: owner.key });
      there.delete(leaving);
    }
    expect(seen.length).toBe(new Set(seen).size);
    expect(seen).toEqual(expect.arrayContaining([...there]));
  },
);
