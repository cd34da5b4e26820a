// The loops of the house: what happens again and again, each on its own period.
import { type Loop, startLoop } from '../shared/loop.ts';
import { type Engine, startEngine } from './base/operations/engine.ts';
import { hangingLoops, type Supervision } from './base/supervision/supervision.ts';
import type { Config } from './config.ts';
import type { Http } from './base/http/server.ts';
import type { PublicPorts } from './rental/edge/public-ports.ts';
import { TICK_MS } from './money/metering/metering.ts';
import { HEARTBEAT_PERIOD_MS } from './rental/edge/heartbeat.ts';
import { forgetOld } from './retention.ts';
import type { Core, Rooms } from './rooms.ts';

const EDGE_PERIOD_MS = 2_000;
const WATCH_PERIOD_MS = 1_000;
const DECOYS_PERIOD_MS = 30_000;
const ABSENCE_PERIOD_MS = 15_000;
/** Events nudge; this is for retries. */
const WEBHOOKS_PERIOD_MS = 500;
/** What a process that died has left held is given back at the start; this is for what the database could not close. */
const RECEIPTS_PERIOD_MS = 15_000;
/** Nothing waits for it. The first run is at the start, and removes the halves of a process that died. */
const BLOBS_PERIOD_MS = 600_000;
/** Those that are out rest for five seconds between looks, or not at all while they load their model. */
const MODEL_SERVERS_PERIOD_MS = 1_000;
const PURGE_PERIOD_MS = 3_600_000;
/** What is new in the books; once a night everything. */
const BOOKS_PERIOD_MS = 3_600_000;
/** Whoever renews a certificate sees it served soon. */
const CERTIFICATES_PERIOD_MS = 10_000;

/** What the loops do for the sockets of the house. */
interface Tended {
  publicPorts: Pick<PublicPorts, 'sync'>;
  http: Pick<Http, 'purgeIdempotencyKeys'>;
  refreshCertificates(): void;
}

export interface Running {
  engine: Engine;
  loops: Loop[];
}

export function startLoops(core: Core, rooms: Rooms, listeners: Tended, keep: Config['retention']): Running {
  const engine = startEngine([rooms.instances.driver, rooms.reservations.driver, rooms.videos.driver], core);
  const loops = [
    startLoop(
      {
        name: 'metering',
        periodMs: TICK_MS,
        run: async (signal) => {
          // First: nobody is stopped for want of money for a time that is not charged.
          await rooms.heartbeat.beat();
          for (const id of await rooms.metering.tick(signal)) await rooms.instances.stopUnpaid(id);
        },
      },
      core,
    ),
    startLoop({ name: 'edge', periodMs: EDGE_PERIOD_MS, run: () => listeners.publicPorts.sync() }, core),
    startLoop({ name: 'webhooks', periodMs: WEBHOOKS_PERIOD_MS, run: () => rooms.webhooks.courier.run() }, core),
    startLoop(
      { name: 'certificates', periodMs: CERTIFICATES_PERIOD_MS, run: async () => listeners.refreshCertificates() },
      core,
    ),
    startLoop(
      { name: 'heartbeat', periodMs: HEARTBEAT_PERIOD_MS, run: async () => void (await rooms.heartbeat.beat()) },
      core,
    ),
    startLoop({ name: 'absence', periodMs: ABSENCE_PERIOD_MS, run: () => rooms.absence.run() }, core),
    startLoop({ name: 'watch', periodMs: WATCH_PERIOD_MS, run: (signal) => rooms.watch.run(signal) }, core),
    startLoop({ name: 'decoys', periodMs: DECOYS_PERIOD_MS, run: (signal) => rooms.decoys.run(signal) }, core),
    startLoop(
      {
        name: 'receipts',
        periodMs: RECEIPTS_PERIOD_MS,
        run: async (signal) => void (await rooms.gateway.sweep(signal)),
      },
      core,
    ),
    startLoop({ name: 'model-servers', periodMs: MODEL_SERVERS_PERIOD_MS, run: rooms.gateway.lookAtServers }, core),
    startBooks(core, rooms),
    startLoop({ name: 'blobs', periodMs: BLOBS_PERIOD_MS, run: (signal) => sweepBlobs(rooms, signal) }, core),
    startLoop(
      {
        name: 'purge',
        periodMs: PURGE_PERIOD_MS,
        run: (signal) => forgetOld(signal, { core, webhooks: rooms.webhooks, ...listeners.http, keep }),
      },
      core,
    ),
  ];
  return { engine, loops };
}

/** A proof that takes long goes on in the next run, at once. */
function startBooks(core: Core, { books }: Rooms): Loop {
  const run = async (signal: AbortSignal): Promise<void> => {
    if (await books.run(signal)) loop.nudge();
  };
  const loop = startLoop({ name: 'books', periodMs: BOOKS_PERIOD_MS, run }, core);
  return loop;
}

/** A blob that none of these names is removed. */
async function sweepBlobs({ blobs, files, videos }: Rooms, signal: AbortSignal): Promise<void> {
  await blobs.sweep({ files: files.namedBlobs, videos: videos.namedBlobs }, signal);
}

/** Tells the service manager that we are alive, while no loop hangs and the database commits. */
export function startWatchdog(
  core: Core,
  running: Running,
  supervision: Pick<Supervision, 'alive'> & { alivePeriodMs: number },
): void {
  const run = async (): Promise<void> => {
    const loops = [running.engine.loop, ...running.loops].map((loop) => loop.status());
    const hanging = hangingLoops(loops, core.clock.now());
    if (hanging.length > 0) throw new Error(`these loops hang: ${hanging.join(', ')}`);
    await core.db.tx('watchdog', async () => undefined);
    await supervision.alive();
  };
  running.loops.push(startLoop({ name: 'watchdog', periodMs: supervision.alivePeriodMs, run }, core));
}
