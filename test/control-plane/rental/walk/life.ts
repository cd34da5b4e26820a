// One life of the whole service in virtual time: who is there, what they have, and how they ask for things.
import { expect } from 'vitest';
import { SCOPES } from '../../../../control-plane/base/http/scopes.ts';
import { ServiceError } from '../../../../shared/errors.ts';
import { type Api, type ApiAccount, openApi } from '../../../contract/api.ts';
import { scriptedOutbound } from '../../../kit/scripted-outbound.ts';
import { type Host, openHost } from './host.ts';
import { openReceivers, type Receivers } from './receivers.ts';

/** Instances that steps are about: the latest. */
const INSTANCES = 6;
/** The second customer runs out of money now and then. */
const POOR_CENTS = 3_000;

export interface Life {
  /** The API of the process that lives now. */
  api: Api;
  owners: readonly ApiAccount[];
  hosts: readonly Host[];
  receivers: Receivers;
  /** Ids, the latest last, with their owner. */
  instances: Map<string, ApiAccount>;
  contracts: string[];
  /** Endpoint -> what it must hear of: the types, and the events that were there before it. */
  endpoints: Map<string, Endpoint>;
  /** Endpoints so far. */
  subscriptions: number;
}

export interface Endpoint {
  owner: ApiAccount;
  url: string;
  types: readonly string[];
  before: ReadonlySet<string>;
}

export async function openLife(): Promise<Life> {
  const outbound = scriptedOutbound();
  const api = await openApi({ webhookOutbound: outbound });
  const { world } = api;
  const sizes = [{ gpus: 4, diskEnforced: true }, { gpus: 4 }, { gpus: 3, dollars: 3 }];
  const hosts: Host[] = [];
  for (const size of sizes) hosts.push(openHost(await world.machine(size)));
  const { orgId } = await world.customer(POOR_CENTS);
  const wish = { orgId, name: 'first', scopes: Object.keys(SCOPES), expiresMs: null };
  const { id: principalId, key } = await world.rooms.accounts.createKey(wish);
  const life: Life = {
    api,
    owners: [await api.account(), { orgId, principalId, key }],
    hosts,
    receivers: openReceivers(outbound, world.clock),
    instances: new Map(),
    contracts: [],
    endpoints: new Map(),
    subscriptions: 0,
  };
  life.receivers.answerWith(204);
  return life;
}

/** A refusal is an answer; anything else is a fault. */
export async function send(
  { api }: Life,
  { key }: ApiAccount,
  [method, url, body]: ['POST' | 'PATCH' | 'DELETE', string, object?],
): Promise<void> {
  const { status } = await api.call(method, url, body === undefined ? { key } : { key, body });
  expect(status).toBeLessThan(500);
}

/** The id of the newest entry of a list. */
export async function firstOf({ api }: Life, { key }: ApiAccount, path: string): Promise<string | undefined> {
  const { data = [] } = (await api.call('GET', `${path}?limit=1`, { key })).json;
  return data[0] === undefined ? undefined : String(data[0]['id']);
}

export async function orRefused(work: Promise<unknown>): Promise<void> {
  await work.catch((error: unknown) => {
    if (!(error instanceof ServiceError)) throw error;
  });
}

/** Steps name things by a number. */
export function pick<T>(list: readonly T[], which: number): T | undefined {
  return list[which % Math.max(1, list.length)];
}

export function ownerAt({ owners }: Life, who: number): ApiAccount {
  return pick(owners, who) as ApiAccount;
}

export function instanceAt(life: Life, which: number): [string, ApiAccount] {
  return pick([...life.instances].slice(-INSTANCES), which) ?? ['none', ownerAt(life, 0)];
}
