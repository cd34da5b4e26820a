// What requests to models hold and cost: never more than there is, never twice, and nothing is held for ever.
import { once } from 'node:events';
import { createServer } from 'node:http';
import type { AddressInfo, Socket } from 'node:net';
import fc from 'fast-check';
import { afterEach, beforeEach, describe, expect, test } from 'vitest';
import type { Reply } from '../../../control-plane/base/http/route.ts';
import { wallet } from '../../../control-plane/money/ledger/accounts.ts';
import type { Balance } from '../../../control-plane/money/ledger/ledger.ts';
import { findReceipt } from '../../../control-plane/models/gateway/store.ts';
import { ServiceError } from '../../../shared/errors.ts';
import { createLog } from '../../../shared/log.ts';
import { type FakeUpstream, HELLO, openFakeUpstream } from '../../kit/fake-upstream.ts';
import { someModels } from '../../kit/models.ts';
import { openWorld, type World, type WorldAccount } from '../../kit/world.ts';

const RUNS = process.env['SOAK'] === '1' ? 200 : 10;
const OUTPUT_CENTS = 600;
const INPUT_CENTS = 15;
/** The bound for `hi`: 256 for the template, 16 for the message, 2 bytes. */
const boundUcents = (maxTokens: number): bigint => BigInt(274 * INPUT_CENTS + maxTokens * OUTPUT_CENTS);
const forever = new AbortController().signal;

let upstream: FakeUpstream;
let world: World;
/** The errors in the log of the control plane. */
let logged: string[];
beforeEach(async () => {
  logged = [];
  upstream = await openFakeUpstream();
  const pricing = { input_per_1m_tokens_cents: INPUT_CENTS, output_per_1m_tokens_cents: OUTPUT_CENTS };
  world = await openWorld(1, {
    log: createLog('test', 'error', { write: (line: string) => void logged.push(line) }),
    settings: {
      models: someModels(upstream.baseUrl, { pricing }),
      openInferenceRequestsPerKey: 30,
      openInferenceRequestsPerOrg: 31,
    },
  });
});
afterEach(async () => {
  await world.verify();
  await world.close();
  await upstream.close();
});

type Who = WorldAccount;

function complete(on: World, { orgId, principalId }: Who, more: { maxTokens?: number; gone?: AbortSignal } = {}) {
  return on.rooms.gateway.completeChat({
    caller: { orgId, principalId, scopes: [] },
    requestId: 'req_test',
    gone: more.gone ?? forever,
    body: { model: 'small', messages: [{ role: 'user', content: 'hi' }], max_tokens: more.maxTokens ?? 10 },
  });
}
const codeOf = (asking: Promise<Reply>): Promise<string> =>
  asking.then(
    () => 'answered',
    (error: unknown) => (error instanceof ServiceError ? error.code : String(error)),
  );
const balanceOf = (on: World, { orgId }: Who): Promise<Balance> => on.rooms.ledger.balance(on.db.read, wallet(orgId));
const receiptOf = (reply: Reply) => findReceipt(world.db.read, reply.headers?.['x-receipt-id'] ?? '');

describe('a balance', () => {
  test('is never overdrawn, however many requests come at once', async () => {
    const asked = fc.array(
      fc.record({ maxTokens: fc.integer({ min: 1, max: 1_024 }), used: fc.integer({ min: 0, max: 2_000 }) }),
      { minLength: 1, maxLength: 30 },
    );
    let refusals = 0;
    await fc.assert(
      fc.asyncProperty(asked, fc.integer({ min: 1, max: 8 }), async (requests, cents) => {
        const who = await world.customer(cents);
        const gate = Promise.withResolvers<void>();
        const decided = countdown(requests.length);
        const used = requests.map((each) => each.used);
        upstream.usual = () => {
          decided.one();
          const usage = { prompt_tokens: 3_000, completion_tokens: used.pop() ?? 0 };
          return { after: gate.promise, body: { ...HELLO, usage } };
        };
        const codes = requests.map(async ({ maxTokens }) => {
          const code = await codeOf(complete(world, who, { maxTokens }));
          if (code !== 'answered') decided.one();
          return code;
        });
        await decided.all;
        const during = await balanceOf(world, who);
        expect(during.availableUcents).toBeGreaterThanOrEqual(0n);
        expect(during.postedUcents).toBe(BigInt(cents) * 1_000_000n);
        gate.resolve();
        const results = await Promise.all(codes);
        expect(results.filter((code) => code !== 'answered' && code !== 'insufficient_balance')).toEqual([]);
        refusals += results.filter((code) => code !== 'answered').length;
        const after = await balanceOf(world, who);
        expect(after.heldUcents).toBe(0n);
        expect(after.postedUcents).toBeGreaterThanOrEqual(0n);
        await world.verify();
      }),
      { seed: 21, numRuns: RUNS },
    );
    // The balances were small enough for some to be refused.
    expect(refusals).toBeGreaterThan(0);
  });

  // Specification 7.3: insufficient balance: the most that a request can cost must be there.
  test('that just covers the most that a request can cost is enough; a microcent less is 402', async () => {
    const who = await world.customer(1);
    const leave = (ucents: bigint): Promise<void> =>
      world.db.tx('test', (tx) => world.rooms.ledger.setHold(tx, 'test:all', wallet(who.orgId), 1_000_000n - ucents));
    upstream.usual = () => ({ body: { ...HELLO, usage: { prompt_tokens: 0, completion_tokens: 0 } } });
    await leave(boundUcents(10));
    expect(await codeOf(complete(world, who))).toBe('answered');
    await leave(boundUcents(10) - 1n);
    expect(await codeOf(complete(world, who))).toBe('insufficient_balance');
    expect(upstream.asked).toHaveLength(1);
  });
});

describe('the hold of a request', () => {
  test('is the most that the request can cost, and all but the charge is released', async () => {
    const who = await world.customer(100);
    const gate = Promise.withResolvers<void>();
    upstream.next({ after: gate.promise });
    const asking = complete(world, who, { maxTokens: 100 });
    await upstream.came(1);
    expect((await balanceOf(world, who)).heldUcents).toBe(boundUcents(100));
    gate.resolve();
    const receipt = await receiptOf(await asking);
    expect(receipt).toMatchObject({ state: 'settled', charged_ucents: 6n * 15n + 3n * 600n });
    expect(await balanceOf(world, who)).toMatchObject({ heldUcents: 0n, postedUcents: 100_000_000n - 1_890n });
  });

  test.each([
    ['the server refuses', { status: 400, body: 'no' }, 'invalid_request'],
    ['the server fails', { status: 500, body: 'no' }, 'upstream_error'],
    ['no server takes it', { status: 503, body: 'no' }, 'upstream_unavailable'],
  ])('is released whole if %s', async (_what, answer, code) => {
    const who = await world.customer(100);
    upstream.next(answer);
    expect(await codeOf(complete(world, who))).toBe(code);
    expect(await balanceOf(world, who)).toMatchObject({ heldUcents: 0n, postedUcents: 100_000_000n });
  });

  test('is released whole if the caller leaves while it waits, and the request to the server is cancelled at once', async () => {
    const who = await world.customer(100);
    upstream.next({ ending: 'stall' });
    const gone = new AbortController();
    const asking = codeOf(complete(world, who, { gone: gone.signal }));
    await upstream.came(1);
    gone.abort();
    await upstream.wereLeft(1);
    await asking;
    expect(await balanceOf(world, who)).toMatchObject({ heldUcents: 0n, postedUcents: 100_000_000n });
  });

  test('is released by the next process if its process dies, and the dead process charges nothing more', async () => {
    const who = await world.customer(100);
    const gate = Promise.withResolvers<void>();
    upstream.next({ after: gate.promise });
    const asking = complete(world, who);
    await upstream.came(1);
    const next = await world.restart();
    expect((await balanceOf(next, who)).heldUcents).toBe(boundUcents(10));
    expect(await next.rooms.gateway.sweep(forever)).toBe(1);
    expect(await balanceOf(next, who)).toMatchObject({ heldUcents: 0n, postedUcents: 100_000_000n });
    gate.resolve();
    const receipt = await receiptOf(await asking);
    expect(logged.filter((line) => line.includes('nothing was charged for it'))).toHaveLength(1);
    expect(receipt).toMatchObject({ state: 'released', ending: 'process_ended', charged_ucents: 0n });
    expect(await balanceOf(next, who)).toMatchObject({ heldUcents: 0n, postedUcents: 100_000_000n });
    expect(await next.rooms.gateway.sweep(forever)).toBe(0);
    await next.rooms.gateway.close();
  });

  test('stays while a living process serves it, also among hundreds of dead ones', async () => {
    const who = await world.customer(100_000);
    const gate = Promise.withResolvers<void>();
    upstream.usual = () => ({ after: gate.promise });
    const dead = Array.from({ length: 25 }, () => codeOf(complete(world, who)));
    await upstream.came(25);
    const next = await world.restart();
    const living = complete(next, who);
    await upstream.came(26);
    expect(await next.rooms.gateway.sweep(forever)).toBe(25);
    expect((await balanceOf(next, who)).heldUcents).toBe(boundUcents(10));
    gate.resolve();
    expect(await receiptOf(await living)).toMatchObject({ state: 'settled' });
    await Promise.all(dead);
    await next.rooms.gateway.close();
  });
});

// Specification 7.3: stream_limit_exceeded: too many inference requests open at once on this API key.
test('each key may have a number of open requests, and an ended or refused request frees its slot', async () => {
  const [who, other] = [await world.customer(10_000), await world.customer(10_000)];
  const poor = await world.customer(0);
  const gate = Promise.withResolvers<void>();
  upstream.usual = () => ({ after: gate.promise });
  const asking = Array.from({ length: 30 }, () => codeOf(complete(world, who)));
  await upstream.came(30);
  const refused = await complete(world, who).catch((error: unknown) => error);
  expect(refused).toMatchObject({ code: 'stream_limit_exceeded', details: { retryAfterSeconds: 1 } });
  const others = codeOf(complete(world, other));
  await upstream.came(31);
  gate.resolve();
  expect(new Set([...(await Promise.all(asking)), await others])).toEqual(new Set(['answered']));
  expect(await codeOf(complete(world, who))).toBe('answered');
  const codes = await Promise.all(Array.from({ length: 31 }, () => codeOf(complete(world, poor))));
  expect(codes.filter((code) => code === 'insufficient_balance').length).toBeGreaterThanOrEqual(30);
  expect(await codeOf(complete(world, poor))).toBe('insufficient_balance');
});

test('all keys of an organisation together may have a number of open requests, and other organisations have their own', async () => {
  const [who, stranger] = [await world.customer(10_000), await world.customer(10_000)];
  const colleague = await world.key(who.orgId);
  const gate = Promise.withResolvers<void>();
  upstream.usual = () => ({ after: gate.promise });
  const asking = [who, colleague].flatMap((each, i) =>
    Array.from({ length: 30 - 29 * i }, () => codeOf(complete(world, each))),
  );
  await upstream.came(31);
  const refused = await complete(world, colleague).catch((error: unknown) => error);
  expect(refused).toMatchObject({
    code: 'stream_limit_exceeded',
    details: { detail: expect.stringContaining('This organisation may have 31') as string, retryAfterSeconds: 1 },
  });
  const others = codeOf(complete(world, stranger));
  await upstream.came(32);
  gate.resolve();
  expect(new Set([...(await Promise.all(asking)), await others])).toEqual(new Set(['answered']));
  expect(await codeOf(complete(world, colleague))).toBe('answered');
});

test('an ended request of one key frees no slot for another key', async () => {
  const [who, other] = [await world.customer(10_000), await world.customer(10_000)];
  const gate = Promise.withResolvers<void>();
  upstream.next(...Array.from({ length: 30 }, () => ({ after: gate.promise })));
  const asking = Array.from({ length: 30 }, () => codeOf(complete(world, who)));
  await upstream.came(30);
  expect(await codeOf(complete(world, other))).toBe('answered');
  expect(await codeOf(complete(world, who))).toBe('stream_limit_exceeded');
  gate.resolve();
  await Promise.all(asking);
});

test('a gateway that closes aborts open requests, and waits until their holds are released', async () => {
  const who = await world.customer(100);
  upstream.next({ ending: 'stall' });
  const asking = codeOf(complete(world, who));
  await upstream.came(1);
  await world.rooms.gateway.close();
  expect((await balanceOf(world, who)).heldUcents).toBe(0n);
  expect(await asking).toBe('unavailable');
  await upstream.wereLeft(1);
});

test('a gateway that closes ends its idle connections to the servers', async () => {
  const server = createServer((_request, response) => response.end(JSON.stringify(HELLO)));
  server.keepAliveTimeout = 0;
  const sockets: Socket[] = [];
  server.on('connection', (socket) => sockets.push(socket));
  await once(server.listen(0, '127.0.0.1'), 'listening');
  const { port } = server.address() as AddressInfo;
  const own = await openWorld(1, { settings: { models: someModels(`http://127.0.0.1:${port}/v1`) } });
  expect(await codeOf(complete(own, await own.customer(100)))).toBe('answered');
  expect(sockets.map((socket) => socket.destroyed)).toEqual([false]);
  await own.close();
  // The server has seen the end of the connection before this request arrives.
  await fetch(`http://127.0.0.1:${port}`, { headers: { connection: 'close' } }).then((response) => response.text());
  expect(sockets[0]?.destroyed).toBe(true);
  await new Promise((resolve) => server.close(resolve));
});

function countdown(count: number): { one(): void; all: Promise<void> } {
  const all = Promise.withResolvers<void>();
  let left = count;
  return {
    one: () => {
      left -= 1;
      if (left === 0) all.resolve();
    },
    all: all.promise,
  };
}
