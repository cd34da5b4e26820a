// The requests that the console has sent, which a test answers in any order. It stands in for `fetch` of each test of the file that imports it.
import { afterEach, beforeEach, vi } from 'vitest';

interface RequestUnderWay {
  url: string;
  answer(body: object): void;
  breakOff(): void;
}

/** The list has the requests in the order in which they were sent. It is empty at the beginning of each test. */
export function requestsUnderWay(): RequestUnderWay[] {
  const underWay: RequestUnderWay[] = [];
  beforeEach(() => {
    underWay.length = 0;
    vi.stubGlobal('fetch', (url: string) => {
      const { promise, resolve, reject } = Promise.withResolvers<Response>();
      underWay.push({
        url,
        answer: (body) => resolve(Response.json(body)),
        breakOff: () => reject(new TypeError('Failed to fetch')),
      });
      return promise;
    });
  });
  afterEach(() => {
    vi.unstubAllGlobals();
  });
  return underWay;
}
