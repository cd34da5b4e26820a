// Answers that are not the service's, or break off: each of them is an error that a screen can show.
import { afterEach, expect, test, vi } from 'vitest';

interface ApiModule {
  call(method: string, path: string, body?: unknown, options?: { signal: AbortSignal }): Promise<unknown>;
  send(method: string, path: string, body: unknown): Promise<Response>;
  eventsIn(response: Response): AsyncIterable<unknown>;
}

interface CodeModule {
  loaded(code: Promise<unknown>): Promise<unknown>;
}

/** The sources of the console are typed for a browser, so they are loaded by name. */
const [API_FILE, CODE_FILE] = ['api.ts', 'code.ts'].map((name) => `../../../control-plane/console/web/core/${name}`);
const { call, send, eventsIn } = (await import(String(API_FILE))) as ApiModule;
const { loaded } = (await import(String(CODE_FILE))) as CodeModule;

afterEach(() => {
  vi.unstubAllGlobals();
});

/** A body that begins with `text` and then fails with `error`. */
function brokenBody(text: string, error: Error): ReadableStream<Uint8Array> {
  const left = [text];
  return new ReadableStream({
    pull: (controller) => {
      const next = left.shift();
      if (next === undefined) controller.error(error);
      else controller.enqueue(new TextEncoder().encode(next));
    },
  });
}

const LOST = new TypeError('network error');
const UNREACHABLE = { status: 0, code: 'unreachable' };
const answerWith = (response: Response): void => void vi.stubGlobal('fetch', async () => response);
const failureOf = (answer: Promise<unknown>): Promise<unknown> => answer.catch((error: unknown) => error);

test.each([
  ['is a page of a foreign network', () => new Response('<html>Log in to the hotel network</html>')],
  ['is cut', () => new Response('{"data":[')],
  ['breaks off', () => new Response(brokenBody('{"data":[', LOST))],
])('an answer that %s is no answer of the service', async (_, response) => {
  answerWith(response());
  expect(await failureOf(call('GET', '/v1/api-keys'))).toMatchObject(UNREACHABLE);
});

test('a refusal that breaks off is no answer of the service', async () => {
  answerWith(new Response(brokenBody('{"code":', LOST), { status: 404 }));
  expect(await failureOf(send('POST', '/v1/auth/session/org', {}))).toMatchObject(UNREACHABLE);
});

test('an answer without a body is an answer', async () => {
  answerWith(new Response(null, { status: 204 }));
  expect(await call('DELETE', '/v1/api-keys/a')).toBeUndefined();
});

test('an answer that the page itself has given up fails with the error of the browser', async () => {
  const given = new DOMException('The operation was aborted.', 'AbortError');
  answerWith(new Response(brokenBody('{"data":[', given)));
  expect(await failureOf(call('GET', '/v1/api-keys'))).toBe(given);
});

test('events of an answer that breaks off end with an error to show', async () => {
  const events = eventsIn(new Response(brokenBody('data: {"choices":[]}\n\n', LOST)));
  const taken: unknown[] = [];
  const all = async (): Promise<void> => {
    for await (const event of events) taken.push(event);
  };
  expect(await failureOf(all())).toMatchObject(UNREACHABLE);
  expect(taken).toHaveLength(1);
});

test('code that cannot be loaded is an error that tells to load the page again', async () => {
  expect(await loaded(Promise.resolve('screen'))).toBe('screen');
  const failure = await failureOf(loaded(Promise.reject(new TypeError('Failed to fetch dynamically imported module'))));
  expect(failure).toMatchObject({ status: 0, code: 'code_not_loaded' });
});
