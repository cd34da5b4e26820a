// A host is lost for good, with its disk, while something is rented on it. The operator gives it up, and its GPUs come back with a new host.
import { EventEmitter } from 'node:events';
import { generateKeyPairSync, type KeyObject, sign } from 'node:crypto';
import { afterEach, beforeEach, describe, expect, test } from 'vitest';
import { waitingMachines } from '../../../control-plane/fleet/supply/overview.ts';
import { listedOfferings } from '../../../control-plane/fleet/supply/catalog.ts';
import { findMachine, gpusOf, type MachineRow } from '../../../control-plane/fleet/supply/store.ts';
import { findInstance } from '../../../control-plane/rental/instances/store.ts';
import { STOPPING_MS_MAX } from '../../../shared/limits.ts';
import type { Inventory } from '../../../shared/protocol/inventory.ts';
import { LINK_CLOSE, linkProof, ServerMessage } from '../../../shared/protocol/link.ts';
import { linkHost, loseHost, type MadeMachine } from '../../kit/machines.ts';
import { runCommand } from '../../kit/operator-commands.ts';
import { openWorld, type World, type WorldAccount } from '../../kit/world.ts';

const NEW_KEY = 'n'.repeat(43);

let world: World;
let who: WorldAccount;
let made: MadeMachine;
let key: KeyObject;
let id: string;
beforeEach(async () => {
  world = await openWorld();
  const pair = generateKeyPairSync('ed25519');
  key = pair.privateKey;
  const publicKey = pair.publicKey.export({ format: 'jwk' }).x ?? '';
  made = await world.machine({ gpus: 2, diskEnforced: true, storageBytes: 1000 * 1024 ** 3, publicKey });
  who = await world.customer(100_000);
  id = await world.run(who, { disk_gb: 200 });
});
afterEach(async () => {
  await world.verify();
  await world.close();
});

async function machine(machineId = made.machineId): Promise<MachineRow> {
  const row = await findMachine(world.db.read, machineId);
  if (row === undefined) throw new Error('the machine is gone');
  return row;
}

const lose = (machineId = made.machineId): Promise<string> =>
  runCommand(world, ['admin', 'machine', 'lost', machineId, '--reason', 'its disk died']);
const offered = async (): Promise<number> =>
  (await listedOfferings(world.db.read, { count: 10 })).reduce((sum, { gpu_free: free }) => sum + free, 0);

/** The rental has ended, but the host has lost its disk and can never confirm that the container is gone. */
async function endUnconfirmed(): Promise<void> {
  await loseHost(world, made.machineId);
  await world.remove(who, id);
  await world.clock.advance(STOPPING_MS_MAX);
  await world.drive();
  expect((await findInstance(world.db.read, id))?.status).toBe('terminated');
}

async function token(): Promise<string> {
  const given = await world.db.tx('test.token', (tx) =>
    world.rooms.supply.reissueToken(tx, made.orgId, made.machineId),
  );
  return given.token;
}

/** What the control plane does with a link of a host: the code with which it closes it, or `up`. */
async function link(inventory: Inventory): Promise<number | 'up' | undefined> {
  let answer: number | 'up' | undefined;
  const socket = Object.assign(new EventEmitter(), {
    OPEN: 1,
    readyState: 1,
    bufferedAmount: 0,
    ping: () => undefined,
    pause: () => undefined,
    resume: () => undefined,
    terminate: () => void socket.emit('close', 1006, Buffer.alloc(0)),
    close: (code: number) => {
      answer = code;
      socket.emit('close', code, Buffer.alloc(0));
    },
    send: (frame: string) => {
      const message = ServerMessage.parse(JSON.parse(frame));
      // It follows the hello's effect in the database.
      if (message.type === 'desired') answer = 'up';
      if (message.type !== 'challenge') return;
      const { machineId } = made;
      const proof = sign(null, linkProof(machineId, message.nonce), key).toString('base64url');
      const { protocol } = message;
      const hello = { type: 'hello', machine_id: machineId, proof, protocol, held: null, boot_id: 'b', inventory };
      const frameOfHello = Buffer.from(JSON.stringify({ ...hello, clone_token: null }));
      queueMicrotask(() => socket.emit('message', frameOfHello, false));
    },
  });
  world.rooms.link.accept(socket, '192.0.2.1', () => undefined);
  await expect.poll(async () => (await world.clock.advance(1), answer)).toBeDefined();
  return answer;
}

describe('without the operator', () => {
  test('a lost host keeps its GPUs rented: it gets no token, is never delisted, and no other machine gets its GPUs', async () => {
    await endUnconfirmed();
    await expect(token()).rejects.toMatchObject({ code: 'conflict' });
    const other = await world.machine({ gpus: 1 });
    await world.rooms.supply.reportInventory(other.machineId, made.inventory);
    await expect(world.rooms.supply.approve(other.machineId)).rejects.toThrow('belong to machine');
    const withdrawn = await world.db.tx('test.delist', (tx) =>
      world.rooms.supply.delist(tx, made.orgId, made.machineId),
    );
    expect(withdrawn).toBe('draining');
  });
});

test('a host that lost its disk while a GPU was rented is given up by the operator, and enrols again', async () => {
  await world.rooms.supply.setTrusted(made.machineId, true);
  await endUnconfirmed();
  const before = (await world.rooms.workloads.desired(made.machineId)).revision;
  expect(await lose()).toContain('pending_verification');
  expect(await machine()).toMatchObject({ status: 'pending_verification', public_key: null, inventory: null });
  expect(await machine()).toMatchObject({ approved: false, approved_gpus: null, trusted: false, online: false });
  expect(await gpusOf(world.db.read, made.machineId)).toEqual([]);
  const after = await world.rooms.workloads.desired(made.machineId);
  expect([after.workloads, after.revision > before]).toEqual([[], true]);
  const request = { token: await token(), public_key: NEW_KEY, inventory: made.inventory };
  await world.rooms.supply.enroll(request);
  await linkHost(world, made.machineId);
  expect(await offered()).toBe(0);
  await world.rooms.supply.approve(made.machineId);
  expect(await offered()).toBe(2);
  expect((await world.journal(made.machineId)).slice(-3)).toEqual([
    'machine.pending',
    'machine.enrolled',
    'machine.listed',
  ]);
  const again = await world.run(who, { gpu_count: 2, disk_gb: 1_000 });
  expect((await findInstance(world.db.read, again))?.status).toBe('running');
});

test('a new machine with the GPUs of a lost host is approved', async () => {
  await endUnconfirmed();
  await lose();
  const other = await world.machine({ gpus: 1, gpu: { name: 'Tesla T4', memory_mib: 15_360 } });
  await world.rooms.supply.reportInventory(other.machineId, made.inventory);
  await world.rooms.supply.approve(other.machineId);
  expect(await offered()).toBe(2);
  expect((await machine()).verification_status).toBe('unverified');
});

test('a disk that the lost host had kept is free on the new one', async () => {
  await world.remove(who, id);
  await world.observe(id, { phase: 'stopped' });
  await world.drive();
  await loseHost(world, made.machineId);
  await lose();
  await world.rooms.supply.enroll({ token: await token(), public_key: NEW_KEY, inventory: made.inventory });
  await linkHost(world, made.machineId);
  await world.rooms.supply.approve(made.machineId);
  const again = await world.run(who, { disk_gb: 1_000 });
  expect((await findInstance(world.db.read, again))?.status).toBe('running');
});

test('a machine that was draining is delisted when its host is given up', async () => {
  await endUnconfirmed();
  await world.db.tx('test.delist', (tx) => world.rooms.supply.delist(tx, made.orgId, made.machineId));
  expect(await lose()).toContain('delisted');
});

test('a machine that the operator has suspended stays suspended', async () => {
  await endUnconfirmed();
  await world.rooms.supply.suspend(made.machineId);
  expect(await lose()).toContain('suspended');
});

test('a machine whose host was given up waits for the operator again only when a new host has enrolled', async () => {
  const waiting = async (): Promise<string[]> =>
    (await waitingMachines(world.db.read, { nowMs: world.clock.now(), limit: 10 })).map((row) => row.id);
  await endUnconfirmed();
  await lose();
  expect(await waiting()).toEqual([]);
  await world.rooms.supply.enroll({ token: await token(), public_key: NEW_KEY, inventory: made.inventory });
  expect(await waiting()).toEqual([made.machineId]);
});

test('the old host cannot come back: neither its key nor a hello that was under way is taken', async () => {
  await loseHost(world, made.machineId);
  expect(await link(made.inventory)).toBe('up');
  await loseHost(world, made.machineId);
  await world.remove(who, id);
  world = await world.restart();
  await lose();
  expect(await link(made.inventory)).toBe(LINK_CLOSE.unauthorized);
  const late = world.db.tx('test.late', async (tx) => {
    await tx.lock('machine', made.machineId);
    const facts = await world.rooms.supply.factsOf(tx, made.machineId);
    return facts === undefined ? [] : world.rooms.supply.arrive(tx, facts, made.inventory);
  });
  await expect(late).rejects.toMatchObject({ code: 'conflict' });
  expect((await machine()).online).toBe(false);
});

describe('it is refused', () => {
  test('while the host is connected', async () => {
    await world.remove(who, id);
    await expect(lose()).rejects.toThrow('The host of this machine is connected');
  });

  test('while the link of the host is up although the database has forgotten that', async () => {
    await world.remove(who, id);
    expect(await link(made.inventory)).toBe('up');
    await world.rooms.supply.setAllOffline();
    await expect(lose()).rejects.toThrow('The host of this machine is connected');
  });

  test('while a rental on it has not ended, which is named', async () => {
    await loseHost(world, made.machineId);
    await expect(lose()).rejects.toThrow(`Not ended on this machine yet: ${id}.`);
    expect((await machine()).public_key).not.toBeNull();
    await runCommand(world, ['admin', 'instance', 'end', id, '--reason', 'its host is lost']);
    await lose();
  });

  test('for a machine without a host, for one that does not exist, and without a reason', async () => {
    await endUnconfirmed();
    await lose();
    await expect(lose()).rejects.toThrow('has no host');
    await expect(lose('nobody')).rejects.toThrow('There is no machine nobody.');
    await expect(runCommand(world, ['admin', 'machine', 'lost', made.machineId])).rejects.toThrow('--reason');
  });
});
