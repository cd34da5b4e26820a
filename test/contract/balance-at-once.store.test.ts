// Many launches, chats and deposits at the same moment against one balance: what is let in is what the balance covers, and the rest gets 402.
import { setImmediate as turn } from 'node:timers/promises';
import { expect, test } from 'vitest';
import { SCOPES } from '../../control-plane/base/http/scopes.ts';
import { type Deposit, findDeposit } from '../../control-plane/money/deposits/store.ts';
import { wallet } from '../../control-plane/money/ledger/accounts.ts';
import type { Balance } from '../../control-plane/money/ledger/ledger.ts';
import { drivePaid, noteRead, offlineDeposits, payDeposit } from '../kit/deposits.ts';
import { type FakeUpstream, HELLO, openFakeUpstream } from '../kit/fake-upstream.ts';
import { someModels } from '../kit/models.ts';
import { LAUNCH } from '../kit/world.ts';
import { type Answer, type Api, openApi } from './api.ts';

const REQUESTS = process.env['SOAK'] === '1' ? 500 : 60;
const KINDS = 3;
const EACH = Math.floor(REQUESTS / KINDS);
/** Each launch, each chat and each deposit is about one dollar. */
const DOLLAR_UCENTS = 100_000_000n;
const DOLLAR_CENTS = 100;
const DOLLAR_UNITS = 1_000_000n;
const COVERED = 7;
/** It covers seven, and not quite eight. */
const BALANCE_CENTS = COVERED * DOLLAR_CENTS + 99;
/** Ten minutes are held. */
const DOLLARS_PER_HOUR = 6;
const GPUS = 16;
/** A chat holds 256 tokens for the template, 16 for the message, 2 bytes, and its longest answer. */
const LONGEST = 1_000;
const PRICING = { input_per_1m_tokens_cents: 1_000, output_per_1m_tokens_cents: 99_726 };
const CHAT = { model: 'small', messages: [{ role: 'user', content: 'hi' }], max_tokens: LONGEST };
const DEPOSIT = { asset: 'usdc', chain: 'ethereum', amount_usd_cents: DOLLAR_CENTS };

/** An account, and what happens to the requests of one moment. */
interface Rush {
  api: Api;
  orgId: string;
  key: string;
  upstream: FakeUpstream;
  balance(): Promise<Balance>;
  /** Sends a chat. Its server is silent until `end`. */
  chat(): Promise<Answer>;
  launch(): Promise<Answer>;
  /** A deposit through the API. */
  deposit(): Promise<Deposit>;
  /** Resolves when each launch has its answer and each chat is refused or at its server, with the refused and those who were let in. */
  decided(launches: Promise<Answer>[], chats: Promise<Answer>[]): Promise<{ letIn: number; refused: Answer[] }>;
  /** The servers answer, and nothing is running any more. */
  end(chats: Promise<Answer>[]): Promise<Answer[]>;
}

async function openRush(): Promise<Rush> {
  const upstream = await openFakeUpstream();
  const gate = Promise.withResolvers<void>();
  upstream.usual = () => ({ after: gate.promise, body: HELLO });
  const deposits = { ...offlineDeposits(['ethereum']), centsMin: DOLLAR_CENTS, openPerOrgMax: REQUESTS };
  const api = await openApi({
    settings: {
      models: someModels(upstream.baseUrl, { pricing: PRICING }),
      openInferenceRequestsPerKey: REQUESTS,
      openInferenceRequestsPerOrg: REQUESTS,
      deposits,
    },
  });
  const { world } = api;
  await noteRead(world, 'ethereum');
  const machines = Math.ceil(EACH / GPUS);
  for (let i = 0; i < machines; i += 1) await world.machine({ gpus: GPUS, dollars: DOLLARS_PER_HOUR });
  const { orgId, key } = await world.customer(BALANCE_CENTS, Object.keys(SCOPES));
  const refusals = (answers: Answer[]): Answer[] => answers.filter(({ status }) => status >= 400);
  return {
    api,
    orgId,
    key,
    upstream,
    balance: () => world.rooms.ledger.balance(world.db.read, wallet(orgId)),
    chat: () => api.call('POST', '/v1/chat/completions', { key, body: CHAT }),
    launch: () => api.call('POST', '/v1/instances', { key, body: LAUNCH }),
    deposit: async () => {
      const { json } = await api.call('POST', '/v1/deposits', { key, body: DEPOSIT });
      const made = await findDeposit(world.db.read, String(json['deposit_id']));
      if (made === undefined) throw new Error(`there is no deposit: ${JSON.stringify(json)}`);
      return made;
    },
    decided: async (launches, chats) => {
      const before = upstream.asked.length;
      const done: Answer[] = [];
      for (const chat of chats) void chat.then((answer) => done.push(answer));
      const launched = await Promise.all(launches);
      while (done.length + upstream.asked.length - before < chats.length) await turn();
      const refused = refusals([...launched, ...done]);
      return { letIn: launched.length + chats.length - refused.length, refused };
    },
    end: async (chats) => {
      gate.resolve();
      const answers = await Promise.all(chats);
      await world.verify();
      await api.close();
      await upstream.close();
      return answers;
    },
  };
}

const times = <T>(count: number, make: () => Promise<T>): Promise<T>[] => Array.from({ length: count }, make);
const codeOf = ({ status, json }: Answer): string => {
  const { code } = (json['error'] ?? json) as { code?: unknown };
  return `${status} ${String(code)}`;
};

// Specification 7.3: insufficient balance: exactly what the balance covers is let in.
test(`of ${REQUESTS} concurrent launches, chats and new deposits, a balance that covers ${COVERED} lets in ${COVERED}`, async () => {
  const rush = await openRush();
  const launches: Promise<Answer>[] = [];
  const chats: Promise<Answer>[] = [];
  const deposits: Promise<Deposit>[] = [];
  for (let i = 0; i < EACH; i += 1) {
    launches.push(rush.launch());
    chats.push(rush.chat());
    deposits.push(rush.deposit());
  }
  const { letIn, refused } = await rush.decided(launches, chats);
  expect(letIn).toBe(COVERED);
  expect(new Set(refused.map(codeOf))).toEqual(new Set(['402 insufficient_balance']));
  // Nobody has paid them.
  expect(new Set((await Promise.all(deposits)).map(({ status }) => status))).toEqual(new Set(['created']));
  expect(await rush.balance()).toEqual({
    postedUcents: BigInt(BALANCE_CENTS) * 1_000_000n,
    heldUcents: BigInt(COVERED) * DOLLAR_UCENTS,
    availableUcents: 99_000_000n,
  });
  const ended = await rush.end(chats);
  expect(ended.filter(({ status }) => status === 200)).toHaveLength(rush.upstream.asked.length);
});

test('deposits that are credited meanwhile let in as many more, and none more than that', async () => {
  const rush = await openRush();
  const { api, balance } = rush;
  const { core, rooms } = api.world;
  const paid = await Promise.all(times(EACH, rush.deposit));
  await Promise.all(paid.map((deposit) => payDeposit(core, deposit, { units: DOLLAR_UNITS })));

  let isRushing = true;
  const lows: bigint[] = [];
  const watching = (async () => {
    while (isRushing) {
      lows.push((await balance()).availableUcents);
      await turn();
    }
  })();
  const launches: Promise<Answer>[] = [];
  const chats: Promise<Answer>[] = [];
  const credits: Promise<void>[] = [];
  for (const { id } of paid) {
    launches.push(rush.launch());
    chats.push(rush.chat());
    credits.push(drivePaid(core, rooms, id));
  }
  const { letIn, refused } = await rush.decided(launches, chats);
  await Promise.all(credits);
  isRushing = false;
  await watching;

  const states = await Promise.all(paid.map(async ({ id }) => (await findDeposit(core.db.read, id))?.status));
  expect(new Set(states)).toEqual(new Set(['credited']));
  expect(lows.filter((ucents) => ucents < 0n)).toEqual([]);
  expect(letIn).toBeGreaterThanOrEqual(COVERED);
  expect(letIn).toBeLessThanOrEqual(COVERED + EACH);
  expect(refused.filter((answer) => codeOf(answer) !== '402 insufficient_balance')).toEqual([]);
  const postedUcents = BigInt(BALANCE_CENTS) * 1_000_000n + BigInt(EACH) * DOLLAR_UCENTS;
  const heldUcents = BigInt(letIn) * DOLLAR_UCENTS;
  expect(await balance()).toEqual({ postedUcents, heldUcents, availableUcents: postedUcents - heldUcents });

  // What was refused too early is let in now, up to the last dollar.
  const left = COVERED + EACH - letIn;
  const later = times(left + 1, rush.chat);
  const second = await rush.decided([], later);
  expect([second.letIn, second.refused.map(codeOf)]).toEqual([left, ['402 insufficient_balance']]);
  await rush.end([...chats, ...later]);
});
