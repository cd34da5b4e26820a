// `svc webhook listen`: a local receiver gets the events of the stream as a webhook endpoint would.
import { afterEach, beforeEach, describe, expect, test } from 'vitest';
import { createServer, type IncomingHttpHeaders, type Server } from 'node:http';
import type { AddressInfo } from 'node:net';
import { buffer } from 'node:stream/consumers';
import { WebhookEvent } from '../../../shared/api/webhook.ts';
import { verify } from '../../kit/webhook-receiver.ts';
import type { Svc, SvcResult } from '../../kit/svc.ts';
import { eventually } from '../../kit/processes.ts';
import { api, openSvcForEachTest, owner, svcOf } from './svc-of-test.ts';

openSvcForEachTest();

const SECRET = '0123456789abcdef'.repeat(4);
let receiver: Server;
let url: string;
let received: { headers: IncomingHttpHeaders; body: Buffer }[];
let status: number;
beforeEach(async () => {
  received = [];
  status = 204;
  receiver = createServer((request, answer) => {
    void buffer(request).then((body) => {
      received.push({ headers: request.headers, body });
      answer.writeHead(status).end();
    });
  });
  await new Promise<void>((resolve) => receiver.listen(0, '127.0.0.1', resolve));
  url = `http://127.0.0.1:${(receiver.address() as AddressInfo).port}/hook`;
});
afterEach(() => new Promise((resolve) => receiver.close(resolve)));

const got = (): WebhookEvent[] => received.map(({ body }) => WebhookEvent.parse(JSON.parse(body.toString())));

/** Listens while something happens, until the given number of events has come, and ends it with Ctrl-C. */
async function whileListening(
  options: string[],
  happens: () => Promise<void>,
  count: number,
  request: typeof fetch = fetch,
): Promise<SvcResult> {
  const svc: Svc = svcOf({ fetch: request });
  const running = svc.run('webhook', 'listen', '--forward', url, ...options);
  await eventually('the stream is open', 10_000, async () =>
    api.world.rooms.live.counts().open > 0 ? true : undefined,
  );
  // The tail of the journal begins with the first reader.
  await api.world.rooms.live.tick();
  await happens();
  await eventually(`${count} events`, 10_000, async () => {
    await api.world.rooms.live.tick();
    return received.length >= count ? true : undefined;
  });
  svc.interrupt();
  return running;
}

async function runOne(): Promise<void> {
  await api.world.machine();
  await api.world.run(owner);
}

describe('svc webhook listen', () => {
  test('posts the public events of instances, signed with the secret that it prints', async () => {
    const { code, stderr, stdout } = await whileListening([], runOne, 2);
    expect(code).toBe(130);
    const secret = /with the secret ([0-9a-f]{64})\n/.exec(stderr)?.[1] ?? '';
    expect(got().map(({ type }) => type)).toEqual(['instance.creating', 'instance.running']);
    const [first, second] = got();
    expect(second?.data.instance).toMatchObject({ id: first?.data.instance.id, status: 'running' });
    expect(second?.data.instance.version).toBeGreaterThanOrEqual(first?.data.instance.version ?? Infinity);
    // The clock of the command stands at the begin of the year.
    const nowSeconds = Date.UTC(2026, 0, 1) / 1000;
    for (const each of received) expect(verify(secret, each, nowSeconds)).toBe(204);
    expect(stdout.split('\n')).toEqual([
      expect.stringMatching(/ {2}instance\.creating {2}i-\w+ {2}evt_\w+ {2}204$/),
      expect.stringMatching(/ {2}instance\.running {2}i-\w+ {2}evt_\w+ {2}204$/),
      '',
    ]);
  });

  test('--json prints the bodies that it posts, one in a line', async () => {
    const { stdout, stderr } = await whileListening(['--json', '--secret', SECRET], runOne, 2);
    expect(stdout).toBe(received.map(({ body }) => `${body.toString()}\n`).join(''));
    expect(stderr).toContain(`with the secret ${SECRET}\n`);
  });

  test('posts the chosen types alone, and goes on after a receiver that refuses', async () => {
    status = 500;
    const { stdout } = await whileListening(['--events', 'instance.running'], runOne, 1);
    expect(got().map(({ type }) => type)).toEqual(['instance.running']);
    expect(stdout).toMatch(/ {2}500\n$/);
  });

  test('--since begins with what happened before', async () => {
    await runOne();
    await whileListening(['--since', '60'], async () => undefined, 2);
    expect(got().map(({ type }) => type)).toEqual(['instance.creating', 'instance.running']);
  });

  test('opens the stream again after the last event when it breaks off, also while the API is away', async () => {
    await runOne();
    const { json } = await api.call('GET', '/v1/events', { key: owner.key });
    const created = json.data?.find(({ type }) => type === 'instance.creating')?.['id'];
    const asked: (string | null)[] = [];
    const flaky: typeof fetch = async (to, init) => {
      if (to === url) return fetch(to, init);
      asked.push(new Headers(init?.headers).get('last-event-id'));
      if (asked.length === 1) return new Response(`event: ready\nid: ${String(created)}\ndata: {}\n\n`);
      // The client repeats a request itself before it gives up.
      if (asked.length <= 5) return new Response('away', { status: 502 });
      return fetch(to, init);
    };
    const { stderr, stdout } = await whileListening([], async () => undefined, 1, flaky);
    expect(asked).toEqual([null, ...Array.from({ length: 5 }, () => created)]);
    expect(stderr).toContain('is opened again: the API answered 502');
    expect(got().map(({ type }) => type)).toEqual(['instance.running']);
    expect(stdout.split('\n')).toHaveLength(2);
  });

  test.each([
    [500, 'internal_error'],
    [429, 'rate_limit_exceeded'],
  ])('goes on after a passing %i', async (status, code) => {
    let asked = 0;
    const flaky: typeof fetch = async (to, init) => {
      if (to === url) return fetch(to, init);
      asked += 1;
      const problem = { type: 'about:blank', title: 'x', status, code, detail: 'Not now.', request_id: 'req_1' };
      // The client repeats some refusals itself before it gives up.
      return asked <= 4 ? Response.json(problem, { status }) : fetch(to, init);
    };
    await runOne();
    await whileListening(['--since', '60'], async () => undefined, 2, flaky);
    expect(got().map(({ type }) => type)).toEqual(['instance.creating', 'instance.running']);
  });

  test('goes on after an event of a newer API that it cannot forward', async () => {
    const asked: (string | null)[] = [];
    const svc = svcOf({
      fetch: async (_to, init) => {
        asked.push(new Headers(init?.headers).get('last-event-id'));
        if (asked.length > 1) svc.interrupt();
        const event = { id: 'evt_1', type: 'instance.running', created_at: '2026-01-01T00:00:00.000Z', status: 'new' };
        return new Response(`event: ${event.type}\nid: evt_1\ndata: ${JSON.stringify({ ...event, resource: {} })}\n\n`);
      },
    });
    const { stderr } = await svc.run('webhook', 'listen', '--forward', url);
    expect(asked).toEqual([null, 'evt_1']);
    expect(stderr).toContain('evt_1 cannot be forwarded');
  });

  test('ends with the refusal of a key without the scope', async () => {
    const { key } = await api.account(['instances:read']);
    const { code, stderr } = await svcOf({ key }).run('webhook', 'listen', '--forward', url, '--json');
    expect(code).toBe(1);
    expect(stderr).toContain('insufficient_scope');
  });

  test.each([
    ['--forward', 'localhost'],
    ['--events', 'instance.starting'],
    ['--secret', '0'.repeat(63)],
    ['--since', '0'],
  ])('refuses %s %s', async (option, text) => {
    const { code, stderr } = await svcOf().run('webhook', 'listen', '--forward', url, option, text);
    expect(code).toBe(2);
    expect(stderr).toContain('must be');
  });
});
