// The log of a container as its page follows it, over connections that break off.
import { afterEach, beforeEach, expect, test, vi } from 'vitest';

interface Line {
  at: string;
  line: string;
}

interface FollowLog {
  follow(id: string, options: { tail: number; signal: AbortSignal; take(line: Line): void }): Promise<void>;
}

/** The sources of the console are typed for a browser, so they are loaded by name. */
const FOLLOW_FILE: string = '../../../control-plane/console/web/customer/follow-log.ts';
const { follow } = (await import(FOLLOW_FILE)) as FollowLog;

/** What the service answers to one request after another: a stream of these events, which breaks off unless it has ended; or a refusal. */
let answers: (readonly string[] | Response | 'unreachable')[];
let asked: URL[];

beforeEach(() => {
  asked = [];
  vi.useFakeTimers({ toFake: ['setTimeout'] });
  vi.stubGlobal('fetch', async (path: string) => {
    asked.push(new URL(path, 'http://localhost'));
    const answer = answers.shift();
    if (answer === undefined || answer === 'unreachable') throw new TypeError('Failed to fetch');
    return answer instanceof Response ? answer : new Response(brokenStream(answer));
  });
});
afterEach(() => {
  vi.useRealTimers();
  vi.unstubAllGlobals();
});

/** Each read takes one event, and the read after the last one fails as in a browser whose connection is lost. */
function brokenStream(events: readonly string[]): ReadableStream<Uint8Array> {
  const left = [...events];
  return new ReadableStream({
    pull: (controller) => {
      const next = left.shift();
      if (next === undefined) controller.error(new TypeError('network error'));
      else controller.enqueue(new TextEncoder().encode(next));
    },
  });
}

const lineOf = (at: string, line: string): string => `event: line\ndata: ${JSON.stringify({ at, line })}\n\n`;
const END = 'event: end\ndata: {}\n\n';

/** Follows until the end of the log, with no wait between the connections. */
async function followed(): Promise<{ lines: string[]; error: unknown }> {
  const lines: string[] = [];
  const take = ({ line }: Line): void => void lines.push(line);
  let isOver = false;
  const following = follow('inst_a', { tail: 100, signal: new AbortController().signal, take }).then(
    () => undefined,
    (error: unknown) => error,
  );
  void following.then(() => (isOver = true));
  while (!isOver) await vi.advanceTimersByTimeAsync(2_000);
  return { lines, error: await following };
}

test('a connection that breaks off before the first line is opened again, and the next lines are taken', async () => {
  answers = [[], 'unreachable', [lineOf('2026-11-24T10:00:00Z', 'begun'), END]];
  expect(await followed()).toEqual({ lines: ['begun'], error: undefined });
  expect(asked.map(({ searchParams }) => searchParams.get('since'))).toEqual([null, null, null]);
});

test('a connection that breaks off after a line continues after it', async () => {
  const at = '2026-11-24T10:00:00Z';
  answers = [[lineOf(at, 'begun')], 'unreachable', [lineOf('2026-11-24T10:00:01Z', 'done'), END]];
  expect(await followed()).toEqual({ lines: ['begun', 'done'], error: undefined });
  expect(asked.map(({ searchParams }) => searchParams.get('since'))).toEqual([null, at, at]);
  expect(asked.map(({ searchParams }) => searchParams.get('tail'))).toEqual(['100', '1000', '1000']);
});

test('a refusal, and a service that has never answered, are thrown', async () => {
  const refusal = (): Response => new Response('{"code":"logs_unavailable","detail":"No log."}', { status: 409 });
  answers = [refusal()];
  expect((await followed()).error).toMatchObject({ status: 409, code: 'logs_unavailable' });
  answers = [[], refusal()];
  expect((await followed()).error).toMatchObject({ status: 409, code: 'logs_unavailable' });
  answers = ['unreachable'];
  expect((await followed()).error).toMatchObject({ status: 0, code: 'unreachable' });
});
