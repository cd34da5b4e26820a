// The live stream: one poll of the journal for all readers of this process, and a bounded queue for each reader.
//
// A reader that takes its events too slowly loses its queue and gets one `resync` instead: it reads its lists again and goes on. A reader that
// comes back after a long time, and has missed more events than are sent at once, gets a `resync` too. A position is the id of an event, or `at_`
// and a time.
import { networkOf } from '../../../shared/client-network.ts';
import type { Clock } from '../../../shared/clock.ts';
import { fail } from '../../../shared/errors.ts';
import { EVENT_STREAMS_PER_ADDRESS_MAX, EVENT_STREAMS_PER_KEY_MAX } from '../../../shared/limits.ts';
import { openRing } from '../../../shared/ring.ts';
import type { Db } from '../../base/db/db.ts';
import { type EventRow, type Events, isInSight, type Sight } from '../../base/events/events.ts';
import type { Caller } from '../../base/http/route.ts';
import { mayStill } from '../../base/users/sessions.ts';
import { openSetBacks, type SetBacks, UNNOTED_MS_MAX } from './set-backs.ts';
import { lateMs, openTail } from './tail.ts';

export interface LiveReader {
  caller: Caller;
  address: string;
  sight: Sight;
  /** Begins after this position; undefined: now. */
  after: string | undefined;
}

/** What a reader gets next: events in the order in which they were found, or the news that some are missing. */
export type LiveNext = { kind: 'ready' | 'resync'; position: string } | { kind: 'events'; rows: EventRow[] };

export interface Live {
  /** @throws ServiceError `stream_limit_exceeded` */
  open(reader: LiveReader): { next: AsyncIterable<LiveNext>; stop(): void };
  /** Reads what is new and hands it to the readers. Without readers it only looks whether the clock was set back. */
  tick(): Promise<void>;
  /** Ends all streams. */
  close(): void;
  counts(): { open: number; resyncs: number };
}

interface Deps {
  db: Db;
  clock: Clock;
  events: Pick<Events, 'newestSince' | 'byIds' | 'ofOrgSince' | 'timeOf'>;
}

/** Largest number of events that may wait for one reader. */
const WAITING_MAX = 1_000;
/** Largest number of events that are sent together. Their resources are described together. */
const PIECE = 50;
/** How often the key or session of an open stream is checked. */
export const CHECK_MS = 15_000;

interface Reader extends LiveReader {
  /** The network of its address. It takes a microsecond to compute, and each reader that comes is compared with all others. */
  network: string;
  waiting: EventRow[];
  hasLost: boolean;
  hasEnded: boolean;
  wake(): void;
  /** Takes the reader out of the readers. */
  leave(): void;
}

export function openLive(deps: Deps): Live {
  const tail = openTail(deps);
  const setBacks = openSetBacks(deps, deps.db.dialect === 'sqlite' ? 0 : lateMs(deps.db));
  const readers = openRing<Reader>();
  let resyncs = 0;
  let starting: Promise<void> | undefined;
  /** True if the last tick failed. The next one may miss events that were committed late, so all readers get a `resync` with it. */
  let hasFailed = false;

  const add = (given: LiveReader): Reader => {
    const network = networkOf(given.address);
    assertMayOpen(readers.list(), given, network);
    const reader = {
      ...given,
      network,
      waiting: [],
      hasLost: false,
      hasEnded: false,
      wake: doNothing,
      leave: doNothing,
    };
    // The first reader begins a new tail: events before it are not new.
    if (readers.size === 0) {
      starting = tail.start();
      hasFailed = false;
    }
    reader.leave = readers.add(reader);
    return reader;
  };

  return {
    open: (given) => {
      const reader = add(given);
      const onResync = (): void => {
        resyncs += 1;
      };
      return {
        next: read(reader, { ...deps, setBacks, started: starting ?? Promise.resolve(), onResync }),
        stop: () => end(reader),
      };
    },
    tick: async () => {
      const hadFailed = hasFailed;
      hasFailed = true;
      await setBacks.note();
      if (readers.size > 0) {
        await starting;
        const rows = await tail.poll();
        for (const reader of readers.list()) give(reader, hadFailed ? undefined : rows);
      }
      hasFailed = false;
    },
    close: () => {
      for (const reader of readers.list()) end(reader);
    },
    counts: () => ({ open: readers.size, resyncs }),
  };
}

function end(reader: Reader): void {
  reader.leave();
  reader.hasEnded = true;
  reader.wake();
}

function assertMayOpen(readers: readonly Reader[], { caller }: LiveReader, network: string): void {
  let ofKey = 0;
  let ofAddress = 0;
  for (const reader of readers) {
    if (reader.caller.principalId === caller.principalId) ofKey += 1;
    if (reader.network === network) ofAddress += 1;
  }
  if (ofKey >= EVENT_STREAMS_PER_KEY_MAX)
    fail('stream_limit_exceeded', {
      detail: `${EVENT_STREAMS_PER_KEY_MAX} event streams are open with this key or session. Close one of them, or share one between your readers.`,
      retryAfterSeconds: 5,
    });
  if (ofAddress >= EVENT_STREAMS_PER_ADDRESS_MAX)
    fail('stream_limit_exceeded', {
      detail: `Your address has ${EVENT_STREAMS_PER_ADDRESS_MAX} event streams open. Close one of them.`,
      retryAfterSeconds: 5,
    });
}

/** Puts the reader's own events into its queue. `rows` is undefined if there may be more events than were read; the reader then gets a `resync`. */
function give(reader: Reader, rows: readonly EventRow[] | undefined): void {
  const own = rows?.filter((row) => concerns(reader, row));
  if (own === undefined || reader.waiting.length + own.length > WAITING_MAX) return lose(reader);
  if (own.length === 0) return;
  reader.waiting.push(...own);
  reader.wake();
}

function lose(reader: Reader): void {
  reader.waiting = [];
  reader.hasLost = true;
  reader.wake();
}

function concerns({ caller, sight }: LiveReader, row: EventRow): boolean {
  return row.org_id === caller.orgId && isInSight(sight, row);
}

interface ReadDeps extends Deps {
  setBacks: SetBacks;
  started: Promise<void>;
  onResync(): void;
}

async function* read(reader: Reader, deps: ReadDeps): AsyncGenerator<LiveNext> {
  const { clock, onResync } = deps;
  await deps.started;
  const opened = `at_${clock.now()}`;
  const missed = await missedOf(reader, deps);
  if (missed === undefined) reader.hasLost = true;
  else yield { kind: 'ready', position: reader.after ?? opened };
  // Ids of the missed events. The next poll may find the same events again.
  const sent = new Set((missed ?? []).map(({ id }) => id));
  let pending = missed ?? [];
  let checkedMs = clock.monotonicMs();
  while (!reader.hasEnded) {
    if (reader.hasLost) {
      reader.hasLost = false;
      pending = [];
      onResync();
      yield { kind: 'resync', position: `at_${clock.now()}` };
    }
    // The queue is emptied only when what was taken from it is sent, so that it stays bounded for a slow reader.
    if (pending.length === 0) pending = reader.waiting.splice(0).filter(({ id }) => !sent.has(id));
    if (pending.length > 0) yield { kind: 'events', rows: pending.splice(0, PIECE) };
    else await woken(reader, clock);
    if (clock.monotonicMs() - checkedMs >= CHECK_MS) {
      checkedMs = clock.monotonicMs();
      if (!(await mayStill(deps.db.read, reader.caller, clock.now()))) return;
    }
  }
}

/** Resolves when something came for the reader, or its key has to be checked. */
async function woken(reader: Reader, clock: Clock): Promise<void> {
  if (reader.waiting.length > 0 || reader.hasLost || reader.hasEnded) return;
  let cancel = (): void => undefined;
  await new Promise<void>((resolve) => {
    reader.wake = resolve;
    cancel = clock.after(CHECK_MS, resolve);
  });
  cancel();
  reader.wake = doNothing;
}

/** A function that is written right into a property would be made among the old objects, and keep its event until the next full collection. */
function doNothing(): void {}

/** The events after the reader's position; undefined if they are too many, or the position is not known any more. */
async function missedOf(reader: Reader, { db, events, setBacks }: ReadDeps): Promise<EventRow[] | undefined> {
  const { after, caller } = reader;
  if (after === undefined) return [];
  const isTime = after.startsWith('at_');
  const atMs = isTime ? Number(after.slice('at_'.length)) : await events.timeOf(db.read, caller.orgId, after);
  if (atMs === undefined) return undefined;
  await setBacks.note();
  const earliestMs = await setBacks.earliestAfter(atMs);
  const fromMs = earliestMs - (db.dialect === 'sqlite' ? UNNOTED_MS_MAX : lateMs(db));
  const rows = await events.ofOrgSince(db.read, caller.orgId, { fromMs, limit: WAITING_MAX + 1 });
  if (rows.length > WAITING_MAX) return undefined;
  // SQLite commits transactions one after another, so all events before the position were sent. Ids of one process grow, whatever its clock shows.
  const isInOrder = db.dialect === 'sqlite' && earliestMs === atMs;
  const isAfter = ({ id, created_ms: createdMs }: EventRow): boolean =>
    isTime || (isInOrder ? createdMs > atMs || id > after : id !== after);
  return rows.filter((row) => isAfter(row) && concerns(reader, row));
}
