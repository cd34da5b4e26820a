// A small world for room tests: all rooms of the control plane on a real database and a virtual clock, with hosts played by the test.
import { randomUUID } from 'node:crypto';
import { rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { type Duplex, duplexPair } from 'node:stream';
import { type Audit, openAudit } from '../../control-plane/admin/audit.ts';
import { openSealing } from '../../control-plane/base/http/sealing.ts';
import type { Mail } from '../../control-plane/base/mail/mail.ts';
import { type Outbound, openOutbound } from '../../control-plane/base/outbound/outbound.ts';
import { openRooms, type Rooms } from '../../control-plane/rooms.ts';
import type { Core, Nudges, Settings } from '../../control-plane/settings.ts';
import { type Books, openBooks } from '../../control-plane/money/ledger/books.ts';
import { type Brings, bringsOf, brought, type Process } from '../../control-plane/brings.ts';
import type { Blobs } from '../../control-plane/base/blobs/blobs.ts';
import { openDiskBlobs } from '../../control-plane/base/blobs/local-disk.ts';
import { openPresignedUrls } from '../../control-plane/base/blobs/presigned-urls.ts';
import { openUrlKeys } from '../../control-plane/base/blobs/url-keys.ts';
import type { Db } from '../../control-plane/base/db/db.ts';
import type { Link } from '../../control-plane/fleet/link/link.ts';
import { SCHEMA } from '../../control-plane/foundation.ts';
import { funding, wallet } from '../../control-plane/money/ledger/accounts.ts';
import type { CreateInstance } from '../../shared/api/instance.ts';
import { createIds } from '../../shared/ids.ts';
import { createLog, type Log } from '../../shared/log.ts';
import { UCENTS_PER_CENT } from '../../shared/money.ts';
import type { ObservedWorkload } from '../../shared/protocol/workload.ts';
import { findInstance } from '../../control-plane/rental/instances/store.ts';
import type { logIn } from '../../control-plane/rental/outages/probe.ts';
import type { ProbeResult } from '../../control-plane/rental/instances/steps.ts';
import { seededRng } from '../../shared/rng.ts';
import { openTestDb } from './databases.ts';
import { type FakeImages, fakeImages, type FakeModelHub, fakeModelHub } from './fake-hubs.ts';
import { openInvariants } from './invariants.ts';
import { addMachine, type MachineOptions, type MadeMachine } from './machines.ts';
import { processAround } from './operator.ts';
import { SETTINGS } from './settings.ts';
import { type VirtualClock, virtualClock } from './virtual-clock.ts';

/** Who acts: an organisation and the key that it acts with. */
export interface WorldAccount {
  orgId: string;
  principalId: string;
}

/** An account with its API key itself. */
export interface KeyAccount extends WorldAccount {
  key: string;
}

export interface World {
  db: Db;
  /** The rooms stand on its database, as in the house. */
  audit: Audit;
  clock: VirtualClock;
  rooms: Rooms;
  /** Made by the first blob, and gone when the world closes. */
  blobsDirectory: string;
  /** What the rooms stand on. */
  core: Core;
  /** The result of the next probe of an SSH endpoint. */
  probeAnswers: Map<string, ProbeResult>;
  images: FakeImages;
  modelHub: FakeModelHub;
  /** An organisation with a prepaid balance. */
  customer(cents: number, scopes?: readonly string[]): Promise<KeyAccount>;
  /** Another API key of the organisation. */
  key(orgId: string): Promise<KeyAccount>;
  /** A listed, online machine. Price of one GPU in dollars. */
  machine(options?: MachineOptions): Promise<MadeMachine>;
  /** The id of a new instance that no host has begun yet. */
  launch(who: WorldAccount, request?: Partial<CreateInstance>): Promise<string>;
  /** The id of a new instance that runs, unless a probe fails. */
  run(who: WorldAccount, request?: Partial<CreateInstance>): Promise<string>;
  /** The host reports that the instance's container runs, then everything that is due is driven. */
  start(instanceId: string): Promise<void>;
  /** The customer deletes the instance. */
  remove(who: WorldAccount, instanceId: string): Promise<void>;
  /** The customer deletes the instance and the host removes its container, then everything that is due is driven. */
  end(who: WorldAccount, instanceId: string): Promise<void>;
  /** The host reports something about the instance's current workload. */
  observe(instanceId: string, patch: Partial<ObservedWorkload> & Pick<ObservedWorkload, 'phase'>): Promise<void>;
  /** Drives every due row until nothing is due now. */
  drive(): Promise<void>;
  /** The time from which the last event of this type counts for billing, if that is not its own time. */
  sinceMs(subjectId: string, type: string): Promise<number | undefined>;
  /** Types of all events of an instance or machine, oldest first. */
  journal(subjectId: string): Promise<string[]>;
  /** What the rooms bring to a process around them, with parts of that process replaced. */
  brings(own?: Partial<Process>): readonly Brings[];
  /** The proof of all rooms, on the database itself: that of a process may wait for the clock, or be over. */
  books: Books;
  /** Throws if the books do not agree, a hold has no owner, or a host was not sent its desired state. */
  verify(): Promise<void>;
  /** The next process on the same database, or on another: this one is gone as by kill -9, and must not be used any more. */
  restart(db?: Db): Promise<World>;
  /** Throws if a hold has no owner, or a host was not sent its desired state. */
  close(): Promise<void>;
}

const nothing = (): void => undefined;
const NO_NUDGES: Nudges = { engine: nothing, edge: nothing, watch: nothing, webhooks: nothing };

const PRESIGNING = { secret: new Uint8Array(32).fill(7), baseUrl: 'https://api.example.com/v1' };

/** What a test may put in place of the world's own. */
export interface WorldOutside {
  /** Parts of the process around the rooms. */
  process?: Partial<Process>;
  mail?: Mail;
  webhookOutbound?: Outbound;
  log?: Log;
  settings?: Partial<Settings>;
  /** A blob store in place of a folder. */
  blobs?: (core: Core) => Blobs;
  nudges?: Nudges;
  /** Whether the process ends, and slowly; left out, it does not. */
  endsSlowly?: () => boolean;
  /** The ids of the other control planes that live; left out, there are none. The world's own is `member-<seed>`. */
  otherMembers?: () => Promise<ReadonlySet<string>>;
  /** A stream into a workload. */
  openStream?: Link['openStream'];
  /** A login that looks like a customer's. */
  logIn?: typeof logIn;
  /** A login at the holder of an instance. */
  probe?: (instanceId: string) => Promise<ProbeResult>;
  /** Opens the database; left out, the one of the lane. */
  openDb?: () => Promise<Db>;
  /** What one process sees of what outlasts it; called for the first, and at each restart. */
  processOn?: (ground: Pick<Core, 'db' | 'clock'>) => Pick<Core, 'db' | 'clock'>;
}

/** A world whose first process has a database that `wrap` puts around the real one, and what `wrap` made. */
export async function openWorldOver<T extends Pick<Core, 'db'>>(
  wrap: (db: Db) => T,
  outside: WorldOutside = {},
): Promise<{ world: World; over: T }> {
  const made = Promise.withResolvers<T>();
  const processOn = ({ db, clock }: Pick<Core, 'db' | 'clock'>): Pick<Core, 'db' | 'clock'> => {
    const over = wrap(db);
    made.resolve(over);
    return { db: over.db, clock };
  };
  const world = await openWorld(1, { ...outside, processOn });
  return { world, over: await made.promise };
}

/** What a process of the control plane finds at its start and leaves at its end. */
type Ground = Pick<World, 'db' | 'clock' | 'blobsDirectory' | 'probeAnswers' | 'images' | 'modelHub'>;

export async function openWorld(seed = 1, outside: WorldOutside = {}): Promise<World> {
  const clock = virtualClock();
  const db = await (outside.openDb?.() ?? openTestDb(SCHEMA, clock));
  const ground: Ground = {
    db,
    clock,
    blobsDirectory: join(tmpdir(), `blobs-${randomUUID()}`),
    probeAnswers: new Map(),
    images: fakeImages(),
    modelHub: fakeModelHub(),
  };
  return openOn(ground, seed, outside);
}

async function openOn(ground: Ground, seed: number, outside: WorldOutside): Promise<World> {
  const { db, clock, blobsDirectory, probeAnswers, images, modelHub } = ground;
  const { core, audit } = coreOn(ground, seed, outside);
  const { ids } = core;
  const rooms = openRooms(
    core,
    { ...SETTINGS, ...outside.settings },
    {
      nudges: outside.nudges ?? NO_NUDGES,
      hasRoom: () => true,
      mail: outside.mail ?? { isConfigured: false, send: async () => false },
      webhookOutbound: outside.webhookOutbound ?? nowhere(clock),
      images,
      modelHub,
      storage: storageOn(core, blobsDirectory, outside),
      listens: () => true,
      endsSlowly: outside.endsSlowly ?? (() => false),
      probes: {
        holder: outside.probe ?? (async (instanceId) => probeAnswers.get(instanceId) ?? { ok: true }),
        listener: async () => ({ ok: true }),
      },
      logIn: outside.logIn ?? (async () => ({ ok: true })),
      openStream: outside.openStream ?? emptyLog,
      members: { id: `member-${seed}`, others: outside.otherMembers ?? (async () => new Set()) },
    },
  );
  await rooms.endpoints.prepare();
  const process = { ...processAround(audit), ...outside.process };
  let standard: readonly Brings[] | undefined;
  const brings: World['brings'] = (own) =>
    own === undefined ? (standard ??= bringsOf(core, rooms, process)) : bringsOf(core, rooms, { ...process, ...own });
  const books = openBooks({ db, clock, log: core.log, proofs: () => brings() });
  const isSimulated = outside.processOn !== undefined;
  const invariants = await openInvariants(rooms, db, { isSimulated });

  const observed: World['observe'] = (instanceId, patch) => observe(rooms, db, instanceId, patch);
  const drive = (): Promise<void> => driveUntilIdle(brings(), clock);

  return {
    ...ground,
    audit,
    rooms,
    core,
    observe: observed,
    restart: async (other = db) => {
      const next = await openOn({ ...ground, db: other }, seed + 1, outside);
      if (await next.rooms.ownOutages.beat()) await next.rooms.supply.setAllOffline();
      return next;
    },
    customer: (cents, scopes = ['full_access']) => addCustomer(rooms, db, { cents, nowMs: clock.now(), scopes }),
    key: (orgId) => addKey(rooms, orgId, ['full_access']),
    machine: (options = {}) => addMachine(rooms, db, ids.uuid, options),
    ...rentalsOf(rooms, observed, drive),
    drive,
    ...journalOf(rooms, db),
    brings,
    books,
    verify: async () => {
      await verifyBooks(books);
      await invariants();
    },
    close: async () => {
      await invariants();
      await Promise.all([rooms.gateway.close(), rooms.videos.close(), rooms.replicas.close(), rooms.deposits.close()]);
      await db.close();
      rmSync(blobsDirectory, { recursive: true, force: true });
    },
  };
}

function storageOn(core: Core, directory: string, { blobs }: WorldOutside) {
  const urlKeys = openUrlKeys(core);
  const presignedUrls = openPresignedUrls({ ...PRESIGNING, keys: urlKeys });
  const onDisk = (): Blobs => openDiskBlobs(directory, { ...core, reserve: { share: 0, bytes: 0 }, presignedUrls });
  return { blobs: blobs?.(core) ?? onDisk(), presignedUrls, urlKeys };
}

async function verifyBooks(books: Books): Promise<void> {
  const faults = await books.verify();
  if (faults.length > 0) throw new Error(`the books do not agree: ${faults.join('; ')}`);
}

function rentalsOf(
  rooms: Rooms,
  observed: World['observe'],
  drive: World['drive'],
): Pick<World, 'launch' | 'run' | 'start' | 'remove' | 'end'> {
  const launch = async (who: WorldAccount, request: Partial<CreateInstance> = {}): Promise<string> => {
    const before = new Set((await rooms.instances.list(who.orgId, { count: 1000 })).map(({ instance }) => instance.id));
    await rooms.instances.create(who, { ...LAUNCH, ...request }, async () => undefined);
    const after = await rooms.instances.list(who.orgId, { count: 1000 });
    return after.find(({ instance }) => !before.has(instance.id))?.instance.id ?? '';
  };
  const start = async (instanceId: string): Promise<void> => {
    await observed(instanceId, { phase: 'running', host_key: 'ssh-ed25519 AAAA' });
    await drive();
  };
  const remove = async (who: WorldAccount, instanceId: string): Promise<void> => {
    await rooms.instances.remove(who, instanceId, async () => undefined);
  };
  return {
    launch,
    start,
    remove,
    run: async (who, request) => {
      const id = await launch(who, request);
      await start(id);
      return id;
    },
    end: async (who, instanceId) => {
      await remove(who, instanceId);
      await observed(instanceId, { phase: 'removed' });
      await drive();
    },
  };
}

function journalOf(rooms: Rooms, db: Db): Pick<World, 'sinceMs' | 'journal'> {
  return {
    sinceMs: async (subjectId, type) => {
      const rows = await rooms.events.ofSubject(db.read, subjectId, { count: 1000 });
      const sinceMs = rows.find((event) => event.type === type)?.data['since_ms'];
      return typeof sinceMs === 'number' ? sinceMs : undefined;
    },
    journal: async (subjectId) => {
      const rows = await rooms.events.ofSubject(db.read, subjectId, { count: 1000 });
      return rows.map((event) => event.type).toReversed();
    },
  };
}

/** What one process has of its own. */
function coreOn(ground: Ground, seed: number, outside: WorldOutside): { core: Core; audit: Audit } {
  const { db, clock } = outside.processOn?.(ground) ?? ground;
  const rng = seededRng(seed);
  const ids = createIds(clock, rng);
  const audit = openAudit({ db, clock, ids });
  const sealing = openSealing(new Uint8Array(32).fill(5), ids);
  return { core: { db: audit.db, clock, ids, rng, log: outside.log ?? createLog('test', 'silent'), sealing }, audit };
}

export const LAUNCH: CreateInstance = { gpu_type: 'H100_SXM', gpu_count: 1, tier: 'on_demand', image: 'busybox' };

/** Names have no address here. */
function nowhere(clock: VirtualClock): Outbound {
  const policy = { ports: [443, 8443], privateNetworks: [], namedHosts: [] };
  return openOutbound(policy, { clock, resolve: async () => [] });
}

/** The first report of a host about a workload. */
export const NOTHING_OBSERVED: Omit<ObservedWorkload, 'workload_id' | 'phase'> = {
  pull: null,
  image_digest: null,
  host_key: null,
  main_exit: null,
  failure_code: null,
  detail: null,
};

/** The bytes that every host sends on a new stream. */
async function emptyLog(): Promise<Duplex> {
  const [near, far] = duplexPair();
  far.end();
  return near;
}

async function addKey(rooms: Rooms, orgId: string, scopes: readonly string[]): Promise<KeyAccount> {
  const { id, key } = await rooms.accounts.createKey({ orgId, name: 'first', scopes: [...scopes], expiresMs: null });
  return { orgId, principalId: id, key };
}

async function addCustomer(
  rooms: Rooms,
  db: Db,
  funds: { cents: number; nowMs: number; scopes: readonly string[] },
): Promise<KeyAccount> {
  const { id: orgId } = await rooms.accounts.createOrg('customer');
  const who = await addKey(rooms, orgId, funds.scopes);
  if (funds.cents === 0) return who;
  const fund = { id: `fund:${orgId}`, debit: funding, credit: wallet(orgId), kind: 'funding.manual', subjectId: orgId };
  const transfer = { ...fund, amountUcents: BigInt(funds.cents) * UCENTS_PER_CENT, effectiveMs: funds.nowMs };
  await db.tx('test.fund', (tx) => rooms.ledger.post(tx, transfer.id, [transfer]));
  return who;
}

async function observe(
  rooms: Rooms,
  db: Db,
  instanceId: string,
  patch: Parameters<World['observe']>[1],
): Promise<void> {
  const instance = await findInstance(db.read, instanceId);
  await rooms.workloads.observe(instance?.machine_id ?? '', {
    type: 'observed',
    held: null,
    unknown_workload_ids: [],
    workloads: [{ ...NOTHING_OBSERVED, workload_id: instance?.workload_id ?? '', ...patch }],
  });
}

async function driveUntilIdle(brings: readonly Brings[], clock: VirtualClock): Promise<void> {
  const drivers = brought(brings, 'drivers');
  const signal = new AbortController().signal;
  for (let round = 0; round < 50; round += 1) {
    let found = 0;
    for (const driver of drivers) {
      const due = await driver.due(clock.now(), 1000);
      found += due.length;
      for (const id of due) await driver.drive(id, signal);
    }
    if (found === 0) return;
  }
  throw new Error('the engine does not come to rest');
}
