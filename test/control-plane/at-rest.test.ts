// What a fleet at rest costs the database: hosts are linked and repeat their reports, rentals run, probes are good, and all loops run.
import { EventEmitter } from 'node:events';
import { afterEach, beforeEach, expect, test } from 'vitest';
import { type Identity, proveIdentity } from '../../agent/link/identity.ts';
import { startLoops } from '../../control-plane/loops.ts';
import { findWorkload } from '../../control-plane/fleet/workloads/store.ts';
import { findInstance } from '../../control-plane/rental/instances/store.ts';
import { AgentMessage, ServerMessage } from '../../shared/protocol/link.ts';
import type { ObservedWorkload } from '../../shared/protocol/workload.ts';
import { seededRng } from '../../shared/rng.ts';
import { countingDb, type CountingDb } from '../kit/counting-db.ts';
import type { MadeMachine } from '../kit/machines.ts';
import { identityFrom } from '../sim/host.ts';
import { NOTHING_OBSERVED, openWorldOver, type World } from '../kit/world.ts';

const MACHINES = 50;
const RENTALS_PER_MACHINE = 2;
const REPORT_MS = 30_000;
const HOUR_MS = 3_600_000;
/** The limit for each machine and second. */
const ROW_WRITES_MAX = 0.02;

let world: World;
let counting: CountingDb;
beforeEach(async () => {
  ({ world, over: counting } = await openWorldOver(countingDb));
});
afterEach(async () => {
  await world.verify();
  await world.close();
});

test('a machine with two rentals costs at most 0.02 row writes a second', async () => {
  const who = await world.customer(10_000_000);
  const rng = seededRng(1);
  const made: { machine: MadeMachine; identity: Identity }[] = [];
  for (let i = 0; i < MACHINES; i += 1) {
    const identity = identityFrom(rng);
    made.push({
      identity,
      machine: await world.machine({ gpus: RENTALS_PER_MACHINE, publicKey: identity.public_key }),
    });
  }
  const ids: string[] = [];
  for (let i = 0; i < MACHINES * RENTALS_PER_MACHINE; i += 1) ids.push(await world.run(who));
  for (const { machine, identity } of made) await linkUp(machine, identity, ids);
  const running = startLoops(world.core, world.brings(), 'primary');
  await world.clock.advance(HOUR_MS);
  const before = counting.counts.rowWrites;
  await world.clock.advance(HOUR_MS);
  const perSecond = (counting.counts.rowWrites - before) / (HOUR_MS / 1000) / MACHINES;
  for (const { loop } of running.loops) await loop.stop();
  expect(world.rooms.link.count()).toBe(MACHINES);
  for (const id of ids) expect((await findInstance(world.db.read, id))?.status).toBe('running');
  expect(perSecond).toBeLessThanOrEqual(ROW_WRITES_MAX);
  expect(perSecond).toBeGreaterThan(0);
});

/** A host in memory that answers pings, keeps its clone tokens and repeats its report. */
async function linkUp(machine: MadeMachine, identity: Identity, ids: readonly string[]): Promise<void> {
  const { machineId, inventory } = machine;
  const workloads: ObservedWorkload[] = [];
  for (const id of ids) {
    const workload = await findWorkload(world.db.read, (await findInstance(world.db.read, id))?.workload_id ?? '');
    if (workload?.machine_id !== machineId) continue;
    workloads.push({ ...NOTHING_OBSERVED, workload_id: workload.id, phase: 'running', host_key: 'ssh-ed25519 AAAA' });
  }
  const send = (message: AgentMessage): void =>
    void socket.emit('message', Buffer.from(JSON.stringify(AgentMessage.parse(message))), false);
  const hear = (text: string): void => {
    const message = ServerMessage.parse(JSON.parse(text));
    if (message.type === 'clone_token') queueMicrotask(() => send({ type: 'clone_token_kept', value: message.value }));
    if (message.type !== 'challenge') return;
    const proof = proveIdentity(identity, machineId, message.nonce);
    const { protocol } = message;
    const rest = { held: null, boot_id: 'b', inventory, clone_token: null };
    queueMicrotask(() => send({ type: 'hello', machine_id: machineId, proof, protocol, ...rest }));
  };
  const socket = Object.assign(new EventEmitter(), {
    OPEN: 1,
    readyState: 1,
    bufferedAmount: 0,
    send: hear,
    ping: () => void socket.emit('pong'),
    pause: () => undefined,
    resume: () => undefined,
    terminate: () => void socket.emit('close', 1006, Buffer.alloc(0)),
    close: () => void socket.emit('close', 1000, Buffer.alloc(0)),
  });
  world.rooms.link.accept(socket, '192.0.2.1', () => undefined);
  const report = (): void => {
    send({ type: 'observed', held: { epoch: 1, revision: 1 }, workloads, unknown_workload_ids: [] });
    send({ type: 'inventory', inventory });
    world.clock.after(REPORT_MS, report);
  };
  world.clock.after(1_000, report);
  await world.clock.advance(10);
}
