// The billing rules against an adversary who chooses the signals: pings, reports of the host, broken GPUs, our own restarts. What a customer
// pays follows from the probes alone: at least for the time in which they were good, and never for time without proof of life.
import { EventEmitter } from 'node:events';
import fc from 'fast-check';
import { expect, inject, test } from 'vitest';
import { type Identity, proveIdentity } from '../../../agent/link/identity.ts';
import { wallet } from '../../../control-plane/money/ledger/accounts.ts';
import { QUIET_AFTER_START_MS } from '../../../control-plane/rental/instances/quiet.ts';
import { findInstance } from '../../../control-plane/rental/instances/store.ts';
import { AgentMessage, ServerMessage } from '../../../shared/protocol/link.ts';
import type { Inventory } from '../../../shared/protocol/inventory.ts';
import { seededRng } from '../../../shared/rng.ts';
import { identityFrom } from '../../sim/host.ts';
import { openWorld, type World } from '../../kit/world.ts';

const SECOND_MS = 1_000;
/** A host that flaps opens a new link this often: sooner than a link counts as settled. */
const FLAP_SECONDS = 8;
/** The time that a host needs to connect its link. */
const LINK_MS = 10;
const FUNDS_UCENTS = 1_000_000n * 1_000_000n;
/** One microcent for each millisecond. */
const DOLLARS = 0.036;
const RUNS = inject('postgresUrl') === undefined ? 25 : 6;
/** The time before a failure is a period of probes in which nobody has answered a ping. The time after it lasts until two probes are good again. */
const CREDITED_MS_MAX = 60_000 + 10_000;
/** Time from a failure until a probe shows it, for a host that goes on answering pings. */
const UNSEEN_MS_MAX = 38_000;
/** Shorter outages do not count: a silent host has twenty seconds, a host that answers has a repair and twenty more. */
const SHORT_MS = 45_000;

/** What the adversary does for a while. Only `alive` is true: whether the container can be reached. */
const anyAct = fc.record({
  alive: fc.boolean(),
  pongs: fc.boolean(),
  /** Reports of the host about its holder. */
  holder: fc.constantFrom('nothing' as const, 'silent' as const, 'replaced' as const),
  /** The host opens a new link every few seconds. */
  flaps: fc.boolean(),
  restart: fc.boolean(),
  seconds: fc.constantFrom(3, 21, 50, 120, 400),
});
type Act = Omit<typeof anyAct extends fc.Arbitrary<infer T> ? T : never, 'seconds'> & { seconds: number };

const QUIET_ACT: Omit<Act, 'seconds'> = { alive: true, pongs: true, holder: 'nothing', flaps: false, restart: false };

test('a customer pays for the time in which probes were good, whatever anybody else reports', async () => {
  const seen = new Set<string>();
  await fc.assert(
    fc.asyncProperty(fc.array(anyAct, { minLength: 3, maxLength: 14, size: 'max' }), async (acts) => {
      const stage = await openStage();
      for (const act of acts) await stage.play(act);
      const { paidMs, aliveMs, outages, ended } = await stage.end();
      const credited = BigInt(outages * CREDITED_MS_MAX);
      const unseen = BigInt(outages * (UNSEEN_MS_MAX + SHORT_MS));
      // If the instance is given up after half an hour, the customer pays for the time before the outage.
      expect(ended || paidMs >= aliveMs - credited).toBe(true);
      expect(paidMs).toBeLessThanOrEqual(aliveMs + unseen);
      seen.add(outages === 0 ? 'no outage' : 'outages');
    }),
    { seed: 5, numRuns: RUNS },
  );
  expect([...seen].toSorted()).toEqual(['no outage', 'outages']);
});

test('an instance whose probes are good is never credited, whatever is silent and whatever its host reports', async () => {
  const stage = await openStage();
  for (const holder of ['silent', 'replaced', 'nothing'] as const) {
    for (const pongs of [true, false]) await stage.play({ ...QUIET_ACT, pongs, holder, seconds: 130 });
  }
  const { paidMs, aliveMs } = await stage.end();
  expect(paidMs).toBe(aliveMs);
});

test.each([false, true])(
  'a dead rental is not charged for more than its first minute, though its host answers every ping (new links all the time: %s)',
  async (flaps) => {
    const stage = await openStage();
    await stage.play({ ...QUIET_ACT, seconds: 100 });
    await stage.play({ ...QUIET_ACT, alive: false, holder: 'replaced', flaps, seconds: 600 });
    const { paidMs, aliveMs } = await stage.end();
    expect(paidMs).toBeLessThanOrEqual(aliveMs + BigInt(UNSEEN_MS_MAX));
  },
);

interface Stage {
  play(act: Act): Promise<void>;
  /** The customer ends the rental. Times are in milliseconds, as one of them costs a microcent. */
  end(): Promise<{ paidMs: bigint; aliveMs: bigint; outages: number; ended: boolean }>;
}

async function openStage(): Promise<Stage> {
  let world = await openWorld(1, { settings: { lossBounds: UNBOUNDED } });
  const identity = identityFrom(seededRng(1));
  const { machineId, inventory } = await world.machine({ dollars: DOLLARS, publicKey: identity.public_key });
  const who = await world.customer(Number(FUNDS_UCENTS / 1_000_000n));
  const id = await world.run(who);
  let host = await linkUp(world, { machineId, identity, inventory });
  let [aliveMs, outages, wasAlive] = [LINK_MS, 0, true];
  const workloadId = (await findInstance(world.db.read, id))?.workload_id ?? '';
  const isOver = async (): Promise<boolean> =>
    !['running', 'unreachable'].includes((await findInstance(world.db.read, id))?.status ?? '');
  const pass = async (
    seconds: number,
    { alive, flaps, pongs }: Pick<Act, 'alive' | 'flaps' | 'pongs'>,
  ): Promise<void> => {
    for (let passed = 0; passed < seconds; passed += 1) {
      if (flaps && passed % FLAP_SECONDS === 0) {
        host = await linkUp(world, { machineId, identity, inventory });
        host.setPongs(pongs);
        if (alive && !(await isOver())) aliveMs += LINK_MS;
      }
      await world.rooms.watch.run(new AbortController().signal);
      if (passed % 10 === 0) await world.rooms.ownOutages.beat();
      if (alive && !(await isOver())) aliveMs += SECOND_MS;
      await world.clock.advance(SECOND_MS);
    }
  };
  const setAlive = (alive: boolean): void => {
    if (alive) world.probeAnswers.delete(id);
    else world.probeAnswers.set(id, { ok: false, leg: 'banner', detail: 'banner: nobody is there' });
    if (wasAlive && !alive) outages += 1;
    wasAlive = alive;
  };
  // Verdicts count from here on.
  await pass(QUIET_AFTER_START_MS / SECOND_MS, QUIET_ACT);
  return {
    play: async (act) => {
      if (act.restart) {
        world = await world.restart();
        host = await linkUp(world, { machineId, identity, inventory });
        if (wasAlive && !(await isOver())) aliveMs += LINK_MS;
      }
      host.setPongs(act.pongs);
      setAlive(act.alive);
      if (act.holder !== 'nothing') host.say(workloadId, act.holder);
      await pass(act.seconds, act);
      // A report of this act must not count in the next one.
      if (act.restart) await pass(QUIET_AFTER_START_MS / SECOND_MS, { ...act, flaps: false });
    },
    end: async () => {
      const ended = await isOver();
      if (!ended) await world.remove(who, id);
      await world.verify();
      const { postedUcents } = await world.rooms.ledger.balance(world.db.read, wallet(who.orgId));
      await world.close();
      return { paidMs: FUNDS_UCENTS - postedUcents, aliveMs: BigInt(aliveMs), outages, ended };
    },
  };
}

const UNBOUNDED = {
  orgCreditsUcents: FUNDS_UCENTS,
  supplierCreditsUcents: FUNDS_UCENTS,
  supplierPaymentsUcents: FUNDS_UCENTS,
};

interface PlayedHost {
  /** Whether it answers pings. */
  setPongs(pongs: boolean): void;
  say(workloadId: string, state: 'silent' | 'replaced'): void;
}

/** A host in memory that speaks the link protocol and answers pings as the test wants. */
async function linkUp(
  world: World,
  { machineId, identity, inventory }: { machineId: string; identity: Identity; inventory: Inventory },
): Promise<PlayedHost> {
  let pongs = true;
  const send = (message: AgentMessage): void =>
    void socket.emit('message', Buffer.from(JSON.stringify(AgentMessage.parse(message))), false);
  const hear = (text: string): void => {
    const message = ServerMessage.parse(JSON.parse(text));
    if (message.type !== 'challenge') return;
    const proof = proveIdentity(identity, machineId, message.nonce);
    const protocol = message.protocol;
    queueMicrotask(() =>
      send({
        type: 'hello',
        machine_id: machineId,
        proof,
        protocol,
        held: null,
        boot_id: 'b',
        inventory,
        clone_token: null,
      }),
    );
  };
  const socket = Object.assign(new EventEmitter(), {
    OPEN: 1,
    readyState: 1,
    bufferedAmount: 0,
    send: hear,
    ping: () => void (pongs && socket.emit('pong')),
    pause: () => undefined,
    resume: () => undefined,
    // The link cuts a host that is silent for too long. This one stays in memory without a link.
    terminate: () => void socket.emit('close', 1006, Buffer.alloc(0)),
    close: () => void socket.emit('close', 1000, Buffer.alloc(0)),
  });
  world.rooms.link.accept(socket, '192.0.2.1', () => undefined);
  await world.clock.advance(LINK_MS);
  return {
    setPongs: (to) => (pongs = to),
    say: (workloadId, state) => send({ type: 'holder', workload_id: workloadId, state, detail: 'by itself' }),
  };
}
