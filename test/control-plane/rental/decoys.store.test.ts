// Decoys find a host that serves only probes, and accuse no other host.
import { afterEach, beforeEach, expect, test } from 'vitest';
import type { WorkloadLife } from '../../../control-plane/fleet/link/lives.ts';
import { findMachine } from '../../../control-plane/fleet/supply/store.ts';
import { type Decoys, openDecoys } from '../../../control-plane/rental/outages/decoys.ts';
import { type Login, type LoginResult, newLoginKey } from '../../../control-plane/rental/outages/probe.ts';
import { findInstance } from '../../../control-plane/rental/instances/store.ts';
import { SSH_CONNECTIONS_MAX } from '../../../shared/limits.ts';
import type { OpenMessage } from '../../../shared/protocol/link.ts';
import { openWorld, type World } from '../../kit/world.ts';

const HOUR_MS = 3_600_000;
const MINUTE_MS = 60_000;
const CUSTOMERS_KEY = 'ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIDS0Z0d0C0mO7xUu0b7n7o2g2s4r8uH8o0rYt0Yk3u9H';

let world: World;
let decoys: Decoys;
let id: string;
let machineId: string;
/** The result of the next decoy. */
let answer: LoginResult;
let logins: Login[];
let targets: OpenMessage['target'][];
/** How often the customer's keys were read, and what reading them throws. */
let keyReads: number;
let keyFault: Error | undefined;
/** The facts about the host. */
let life: WorkloadLife;

beforeEach(async () => {
  world = await openWorld();
  ({ machineId } = await world.machine());
  id = await world.run(await world.customer(10_000));
  answer = { ok: true };
  [logins, targets, keyReads, keyFault] = [[], [], 0, undefined];
  life = { isAnswering: true, upSinceMs: 0, lastMs: null, sshStreams: 0, sshNetworks: 0 };
  decoys = openDecoys({
    ...world.core,
    endpoints: world.rooms.endpoints,
    link: {
      lifeOf: () => life,
      openStream: async (_machineId, _workloadId, target) => {
        targets.push(target);
        throw new Error('nobody dials');
      },
    },
    newKey: newLoginKey,
    customerKeysOf: async () => {
      keyReads += 1;
      if (keyFault !== undefined) throw keyFault;
      return [CUSTOMERS_KEY];
    },
    logIn: async (login, openStream) => {
      logins.push(login);
      await openStream().catch(() => undefined);
      return answer;
    },
    accuse: world.rooms.supply.accuse,
  });
});
afterEach(async () => {
  await world.verify();
  await world.close();
});

/** Probes go on and are good. */
async function passes(ms: number): Promise<void> {
  for (let passedMs = 0; passedMs < ms; passedMs += MINUTE_MS / 2) {
    await world.clock.advance(MINUTE_MS / 2);
    await world.rooms.watch.run(new AbortController().signal);
    await decoys.run(new AbortController().signal);
  }
}

const machine = () => findMachine(world.db.read, machineId);

test('a decoy looks like a customer to the host: kind of stream, key, address and client', async () => {
  await passes(10 * MINUTE_MS);
  expect(logins).toHaveLength(1);
  expect(logins[0]).toMatchObject({
    user: 'root',
    hostKey: 'ssh-ed25519 AAAA',
    ident: expect.stringMatching(/^OpenSSH_/),
  });
  const [target] = targets;
  if (target?.kind !== 'ssh') throw new Error('it is no stream of a customer');
  expect(target.client_ip).toMatch(/^(\d{1,3}\.){3}\d{1,3}$/);
  expect(target.authorized_keys).toHaveLength(2);
  expect(target.authorized_keys).toContain(CUSTOMERS_KEY);
  // A customer's own connection carries the same keys, in the same order, without words that tell.
  const instance = await findInstance(world.db.read, id);
  const shown = instance === undefined ? [] : await decoys.loginKeysOf(world.db.read, instance);
  expect(shown).toEqual(target.authorized_keys);
  expect(shown.every((line) => line.split(' ').length === 2)).toBe(true);
});

test('a host that serves its customer stays on the market, and decoys come about once an hour', async () => {
  await passes(5 * HOUR_MS);
  expect(logins.length).toBeGreaterThanOrEqual(4);
  expect(logins.length).toBeLessThanOrEqual(7);
  expect((await machine())?.verification_status).toBe('unverified');
});

test('a decoy that fails on our side is repeated after minutes, so it does not come before others at each run', async () => {
  keyFault = new Error('its keys cannot be read');
  await passes(18 * MINUTE_MS);
  expect(keyReads).toBeGreaterThanOrEqual(2);
  expect(keyReads).toBeLessThanOrEqual(4);
  keyFault = undefined;
  await passes(7 * MINUTE_MS);
  expect(logins).toHaveLength(1);
});

test('a host that refuses three decoys in a row while probes are good is off the market; the customer is still charged', async () => {
  answer = { ok: false, leg: 'auth', detail: 'auth: All configured authentication methods failed' };
  await passes(10 * MINUTE_MS);
  expect((await machine())?.verification_status).toBe('unverified');
  await passes(12 * MINUTE_MS);
  expect(logins).toHaveLength(3);
  expect(await machine()).toMatchObject({
    verification_status: 'failed',
    verification_detail: expect.stringContaining('refused 3 logins that look like the customer'),
  });
  expect(await findInstance(world.db.read, id)).toMatchObject({ status: 'running', unreachable_since_ms: null });
  expect(await world.journal(id)).not.toContain('instance.unreachable');
});

test('a good decoy forgives those that failed before it', async () => {
  const untilLogins = async (count: number): Promise<void> => {
    while (logins.length < count) await passes(MINUTE_MS);
  };
  answer = { ok: false, leg: 'banner', detail: 'banner: no answer' };
  await untilLogins(2);
  answer = { ok: true };
  await untilLogins(3);
  answer = { ok: false, leg: 'banner', detail: 'banner: no answer' };
  await untilLogins(5);
  expect((await machine())?.verification_status).toBe('unverified');
  await untilLogins(6);
  expect((await machine())?.verification_status).toBe('failed');
});

test.each<[string, () => void]>([
  ['strangers of nine networks log in', () => (life = { ...life, sshStreams: 9, sshNetworks: 9 })],
  ['its SSH server has no place at all', () => (life = { ...life, sshStreams: SSH_CONNECTIONS_MAX })],
  ['it does not answer pings', () => (life = { ...life, isAnswering: false })],
  ['probes fail too', () => void world.probeAnswers.set(id, { ok: false, leg: 'banner', detail: 'closed' })],
])('no decoy is sent to a host while %s', async (_what, happen) => {
  answer = { ok: false, leg: 'banner', detail: 'banner: no answer' };
  happen();
  await passes(HOUR_MS / 2);
  expect(logins).toEqual([]);
  expect((await machine())?.verification_status).toBe('unverified');
});

test('a decoy is sent even while clients of eight networks log in, and many idle connections are open', async () => {
  life = { ...life, sshStreams: SSH_CONNECTIONS_MAX - 1, sshNetworks: 8 };
  await passes(10 * MINUTE_MS);
  expect(logins).toHaveLength(1);
});
