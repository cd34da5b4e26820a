// The API that each test of a file has to itself: opened before it with an account of all scopes, its books proved and closed after it.
import { afterEach, beforeEach } from 'vitest';
import type { WorldOutside } from '../kit/world.ts';
import { type Api, type ApiAccount, openApi } from './api.ts';

export let api: Api;
export let owner: ApiAccount;

/** Every test of the file gets its own API. `outside` is called anew for each. */
export function openApiForEachTest(outside: () => WorldOutside = () => ({})): void {
  beforeEach(async () => {
    api = await openApi(outside());
    owner = await api.account();
  });
  afterEach(async () => {
    await api.world.verify();
    await api.close();
  });
}
