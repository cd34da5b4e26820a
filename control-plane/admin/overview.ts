// The overview of operators: the current figures of all rooms, and the last 24 hours.
import type { Overview, OverviewLoop, OverviewDay } from '../../shared/api/overview.ts';
import { type Clock, isoTime } from '../../shared/clock.ts';
import type { LoopStatus } from '../../shared/loop.ts';
import { dollarText } from '../../shared/money.ts';
import { VERSION } from '../../shared/version.ts';
import type { Db, Query } from '../base/db/db.ts';
import { allPauses } from '../base/db/pauses.ts';
import type { Secondaries } from '../base/db/members.ts';
import { databaseBytes, type DiskUse } from '../base/db/readiness.ts';
import type { DueRows, Servers, Waiting, Waits } from '../base/http/overview.ts';
import { gpusOffered, linkedMachines } from '../fleet/supply/overview.ts';
import { openFreeTimes } from '../money/credits/overview.ts';
import { modelTraffic } from '../models/gateway/overview.ts';
import { proofState } from '../money/ledger/proof-store.ts';
import { launchesSince, rentedNow } from '../rental/instances/overview.ts';
import { MINUTE_MS, workOfLastMinute, type LinkMinute, linkMinutes } from './minutes.ts';
import { outagesSince } from '../money/credits/outages.ts';

export interface OverviewDeps {
  db: Db;
  clock: Clock;
  loops(): LoopStatus[];
  process: {
    startedMs: number;
    epoch(): number;
    secondaries?: Pick<Secondaries, 'count'> | undefined;
    disk?: (() => Promise<DiskUse>) | undefined;
  };
  /** Kinds of things of all rooms that wait for an operator. `dueRows` and `servers` are those of all rooms too. */
  waits(): readonly Waits[];
  dueRows(): readonly DueRows[];
  servers(): readonly Servers[];
}

const LAUNCHES_MS = 3_600_000;
/** Number of waiting things that are read of each kind. */
const WAITING_READ_MAX = 50;
const WAITING_SHOWN_MAX = 20;
/** A loop is late if it last succeeded before LATE_PERIODS of its periods plus LATE_MS. systemd/alerts.yaml must have the same numbers. */
const LATE_PERIODS = 2;
const LATE_MS = 300_000;

export async function overviewOf(deps: OverviewDeps): Promise<Overview> {
  const { db, clock, process } = deps;
  const nowMs = clock.now();
  const loops = deps.loops().map((loop) => ({ loop, state: stateOf(loop, nowMs) }));
  const [ledger, machines, offered, rented, outages, launches, disk, size, waiting, due, models, traffic, day, pauses] =
    await Promise.all([
      proofState(db.read),
      linkedMachines(db.read),
      gpusOffered(db.read),
      rentedNow(db.read),
      openFreeTimes(db.read),
      launchFigures(db.read, nowMs),
      process.disk?.() ?? null,
      databaseBytes(db),
      waitingOf(deps, nowMs),
      dueOf(deps, nowMs),
      Promise.all(deps.servers().map(async (read) => read(db.read))),
      modelTraffic(db.read, nowMs),
      lastDayOf(db.read, nowMs),
      allPauses(db.read),
    ]);
  return {
    at: isoTime(nowMs),
    version: VERSION,
    started_at: isoTime(process.startedMs),
    epoch: process.epoch(),
    secondaries: (await process.secondaries?.count()) ?? 0,
    paused: pauses.map(({ what, since_ms: sinceMs, actor, reason }) => ({
      what,
      since: isoTime(sinceMs),
      by: actor,
      reason,
    })),
    ledger: {
      faults: ledger.faults,
      transfers: ledger.transfers,
      new_proven_at: timeOf(ledger.new_proven_ms),
      whole_proven_at: timeOf(ledger.whole_proven_ms),
    },
    machines,
    gpus: { offered, rented: rented.gpus, revenue_per_hour: dollarText(rented.ucents_per_hour) },
    outages,
    launches,
    disk,
    database_bytes: size,
    waiting: waitingView([...waiting, ...loops.flatMap((each) => waitingLoop(each))]),
    loops: loops.map(({ loop, state }) => loopView(loop, state)),
    due,
    models: models.flat(),
    traffic,
    // The current minute is not noted yet.
    last_day: { ...day, silent_most: Math.max(day.silent_most, machines.listed - machines.linked) },
  };
}

function stateOf(loop: LoopStatus, nowMs: number): OverviewLoop['state'] {
  if (loop.last_error !== null) return 'failed';
  const sinceMs = loop.last_success_ms ?? loop.last_started_ms ?? nowMs;
  if (nowMs - sinceMs > LATE_PERIODS * loop.period_ms + LATE_MS) return 'late';
  return loop.last_success_ms === null ? 'starting' : 'ok';
}

function loopView(loop: LoopStatus, state: OverviewLoop['state']): OverviewLoop {
  return {
    name: loop.name,
    state,
    error: loop.last_error,
    period_seconds: loop.period_ms / 1000,
    last_duration_ms: loop.last_duration_ms,
    last_success_at: timeOf(loop.last_success_ms),
  };
}

function waitingLoop({ loop, state }: { loop: LoopStatus; state: OverviewLoop['state'] }): Waiting[] {
  if (state === 'ok' || state === 'starting') return [];
  const why = loop.last_error === null ? 'has not ended well for too long' : `fails: ${loop.last_error}`;
  const sinceMs = loop.last_success_ms ?? loop.last_started_ms ?? 0;
  const what = `The loop ${loop.name} ${why}.`;
  return [{ kind: 'loop', id: loop.name, what, sinceMs, command: 'svc-control-plane admin loops' }];
}

async function waitingOf({ db, waits }: OverviewDeps, nowMs: number): Promise<Waiting[]> {
  const parts = await Promise.all(waits().map((read) => read(db.read, { nowMs, limit: WAITING_READ_MAX })));
  return parts.flat();
}

function waitingView(waiting: readonly Waiting[]): Overview['waiting'] {
  const oldest = waiting.toSorted((a, b) => a.sinceMs - b.sinceMs).slice(0, WAITING_SHOWN_MAX);
  return {
    count: waiting.length,
    oldest: oldest.map(({ sinceMs, ...rest }) => ({ ...rest, since: isoTime(sinceMs) })),
  };
}

async function dueOf({ db, dueRows }: OverviewDeps, nowMs: number): Promise<Overview['due']> {
  const work = await workOfLastMinute(db.read, nowMs);
  return Promise.all(
    dueRows().map(async ({ kind, count: read, done }) => {
      const { count, oldest_ms: oldestMs } = await read(db.read, nowMs);
      const perMinute = 'driver' in done ? work.get(done.driver) : await done.since(db.read, nowMs - MINUTE_MS);
      const oldestSeconds = oldestMs === null ? null : (nowMs - oldestMs) / 1000;
      return { kind, count, oldest_seconds: oldestSeconds, per_minute: perMinute ?? null };
    }),
  );
}

async function launchFigures(query: Query, nowMs: number): Promise<Overview['launches']> {
  const rows = await launchesSince(query, nowMs - LAUNCHES_MS);
  const boots = rows.flatMap((row) => (row.ready_ms === null ? [] : [row.ready_ms - row.created_ms]));
  const medianMs = boots.toSorted((a, b) => a - b)[Math.floor(boots.length / 2)];
  return {
    seconds: LAUNCHES_MS / 1000,
    asked: rows.length,
    ran: boots.length,
    failed: rows.filter((row) => row.ready_ms === null && !row.is_on_its_way).length,
    median_seconds: medianMs === undefined ? null : medianMs / 1000,
  };
}

function timeOf(ms: number | null): string | null {
  return ms === null ? null : isoTime(ms);
}

const DAY_MS = 24 * 3_600_000;

/** The state of links comes from the rows of minutes.ts, the outages come from their own table. */
async function lastDayOf(query: Query, nowMs: number): Promise<OverviewDay> {
  const fromMs = nowMs - DAY_MS;
  const minutes = await linkMinutes(query, fromMs);
  const outages = await outagesSince(query, fromMs);
  const spans = outages.map(({ cause, fromMs: startMs, untilMs: endMs }) => ({
    state: cause === 'own_outage' ? ('away' as const) : ('outage' as const),
    fromMs: startMs,
    untilMs: endMs ?? nowMs,
  }));
  const credited = outages.reduce((sum, { grantedUcents }) => sum + grantedUcents, 0n);
  return {
    from: isoTime(fromMs),
    until: isoTime(nowMs),
    spans: [...linkSpans(minutes), ...spans].map((span) => ({
      state: span.state,
      from: isoTime(span.fromMs),
      until: isoTime(span.untilMs),
    })),
    silent_most: Math.max(0, ...minutes.map(({ listed, linked }) => listed - linked)),
    outages: outages.length,
    credited: dollarText(credited),
  };
}

interface Span {
  state: OverviewDay['spans'][number]['state'];
  fromMs: number;
  untilMs: number;
}

/** Joins consecutive minutes of the same state into one span. Minutes without a row between two rows become a span `away`. */
function linkSpans(minutes: readonly LinkMinute[]): Span[] {
  const spans: Span[] = [];
  const add = (state: Span['state'], fromMs: number, untilMs: number): void => {
    const last = spans.at(-1);
    if (last?.state === state && last.untilMs === fromMs) last.untilMs = untilMs;
    else spans.push({ state, fromMs, untilMs });
  };
  for (const { minute_ms: minuteMs, listed, linked } of minutes) {
    const last = spans.at(-1);
    const endMs = last?.untilMs ?? minuteMs;
    // The loop that writes the rows takes a little more than a minute, so a single missing row does not mean that nobody was there.
    if (minuteMs - endMs > MINUTE_MS) add('away', endMs, minuteMs);
    else if (last !== undefined) last.untilMs = minuteMs;
    add(linked < listed ? 'silent' : 'up', minuteMs, minuteMs + MINUTE_MS);
  }
  return spans;
}
