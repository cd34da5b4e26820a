// The API on a socket and the program `svc` that calls it, for each test of a file.
import { afterEach, beforeEach } from 'vitest';
import { type Api, type ApiAccount, openApi } from '../../contract/api.ts';
import { openSvc, type Svc, type SvcOptions } from '../../kit/svc.ts';

export let api: Api;
export let owner: ApiAccount;
export let baseUrl: string;
const opened: Svc[] = [];

/** How long the API waits for connections when it closes. */
const CLOSE_MS = 60_000;

export function openSvcForEachTest(): void {
  beforeEach(async () => {
    api = await openApi();
    owner = await api.account();
    const { port } = await api.http.listen({ host: '127.0.0.1', port: 0 });
    baseUrl = `http://127.0.0.1:${port}/v1`;
  });
  afterEach(async () => {
    for (const svc of opened.splice(0)) svc.close();
    // fetch may keep a connection on which nothing was sent yet.
    const closing = api.close();
    await api.world.clock.advance(CLOSE_MS);
    await closing;
  });
}

/** Signed in as the owner, unless the options say otherwise. */
export function svcOf(options: SvcOptions = {}): Svc {
  const svc = openSvc({ baseUrl, key: owner.key, ...options });
  opened.push(svc);
  return svc;
}
