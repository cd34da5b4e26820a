// Opens GET /v1/events as a stream in the process, past HTTP, which would wait for the end of the answer.
import type { Readable } from 'node:stream';
import { fail } from '../../shared/errors.ts';
import type { Api } from './api.ts';

export interface LiveCall {
  lastEventId?: string;
  after?: string;
  address?: string;
}

/** The caller has an API key, or the token of a session. @throws ServiceError if the stream is refused */
export async function openCall(
  api: Api,
  who: { key: string } | { token: string },
  call: LiveCall = {},
): Promise<Readable> {
  const route = api.routes.find(({ operationId }) => operationId === 'listEvents');
  const { accounts, users } = api.world.rooms;
  const caller =
    'key' in who
      ? await accounts.authenticate(who.key, { confirmsKey: false })
      : await users.sessions.authenticate(who.token);
  if (route === undefined || caller === undefined) return fail('unauthorized', 'the test has no such key');
  const reply = await route.handler({
    caller,
    params: {},
    query: { limit: 50, after: call.after },
    body: undefined,
    accepts: 'text/event-stream',
    encodings: '',
    lastEventId: call.lastEventId,
    range: undefined,
    requestId: 'req_test',
    clientIp: call.address ?? '127.0.0.1',
    gone: new AbortController().signal,
    actor: 'test',
    browser: () => ({ sessionToken: undefined, userAgent: '' }),
    isForm: false,
    settle: async () => undefined,
  });
  if (reply.stream === undefined) throw new Error('the answer is no stream');
  return reply.stream;
}
