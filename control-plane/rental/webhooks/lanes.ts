// Lanes: the jobs in progress for each endpoint. Lanes do not wait for each other, and no job is started twice.
//
// Lanes belong to groups. A group starts a job only while it has fewer jobs in progress than places are free. So a few groups that take all that
// they can get still leave places for the next group. Example: eight of them hold a ninth of the places each, and a ninth stays free.
import type { Log } from '../../../shared/log.ts';

export interface Lanes {
  /** Starts what is due in this lane, now and whenever one of its jobs ends while more than one place is free. Returns at once. */
  check(key: string): void;
  isUnderWay(key: string, id: string): boolean;
  /** How many lanes to check, busy ones included; 0 if nothing more may start. */
  limit(): number;
  /** The groups that may start nothing more now. To check their lanes is useless. */
  fullGroups(): string[];
  /** Starts nothing more, and resolves when all jobs have ended. */
  stop(): Promise<void>;
}

interface LanesOptions<Job> {
  /** Largest number of jobs in progress in all lanes together. */
  max: number;
  /** Largest number of jobs in progress of one group, however many places are free. A later `check` looks again at what is beyond that. */
  groupMax: number;
  groupOf(job: Job): string;
  log: Log;
  /** The due jobs of a lane with `busy` jobs in progress (which may be among them), and how many may run at once. */
  due(key: string, busy: number): Promise<{ slots: number; jobs: Job[] }>;
  /** Does the job. Never throws. */
  carry(job: Job): Promise<void>;
}

interface Lane {
  key: string;
  underWay: Map<string, Promise<void>>;
  /** True while due jobs are read. Two reads at the same time would start the same job. */
  reading: boolean;
  readAgain: boolean;
}

/** The places of all jobs in progress, and how many of them each group has. */
function openPlaces({ max, groupMax }: { max: number; groupMax: number }) {
  let free = max;
  const ofGroups = new Map<string, number>();
  const isFull = (count: number): boolean => count >= Math.min(groupMax, free);
  return {
    free: () => free,
    mayTake: (group: string) => !isFull(ofGroups.get(group) ?? 0),
    fullGroups: () => [...ofGroups].filter(([, count]) => isFull(count)).map(([group]) => group),
    note: (group: string, change: 1 | -1): void => {
      free -= change;
      const count = (ofGroups.get(group) ?? 0) + change;
      if (count === 0) ofGroups.delete(group);
      else ofGroups.set(group, count);
    },
  };
}

export function openLanes<Job extends { id: string }>(options: LanesOptions<Job>): Lanes {
  const lanes = new Map<string, Lane>();
  const places = openPlaces(options);
  let stopped = false;

  const start = (lane: Lane, job: Job): void => {
    const group = options.groupOf(job);
    places.note(group, 1);
    const work = options.carry(job).finally(() => {
      places.note(group, -1);
      lane.underWay.delete(job.id);
      // The last free place is for the lane that has waited longest. The caller knows it, and checks it first.
      if (places.free() > 1) void check(lane);
      else forgetIfIdle(lane);
    });
    lane.underWay.set(job.id, work);
  };

  const startDue = async (lane: Lane): Promise<void> => {
    // A job that ends during the read may still be due in its result.
    const busy = new Set(lane.underWay.keys());
    const { slots, jobs } = await options.due(lane.key, busy.size);
    for (const job of jobs) {
      if (lane.underWay.size >= slots || !places.mayTake(options.groupOf(job)) || stopped) return;
      if (!busy.has(job.id)) start(lane, job);
    }
  };

  const check = async (lane: Lane): Promise<void> => {
    lane.readAgain = true;
    if (lane.reading) return;
    lane.reading = true;
    try {
      while (lane.readAgain && !stopped) {
        lane.readAgain = false;
        await startDue(lane);
      }
    } catch (error) {
      options.log.error({ lane: lane.key, err: error }, 'what is due could not be read; the next period tries again');
    }
    lane.reading = false;
    forgetIfIdle(lane);
  };

  const forgetIfIdle = (lane: Lane): void => {
    if (lane.underWay.size === 0 && !lane.reading) lanes.delete(lane.key);
  };

  return {
    check: (key) => {
      const lane = lanes.get(key) ?? { key, underWay: new Map(), reading: false, readAgain: false };
      lanes.set(key, lane);
      void check(lane);
    },
    isUnderWay: (key, id) => lanes.get(key)?.underWay.has(id) ?? false,
    limit: () => (places.free() > 0 && !stopped ? places.free() + lanes.size : 0),
    fullGroups: places.fullGroups,
    stop: async () => {
      stopped = true;
      await Promise.all([...lanes.values()].flatMap((lane) => [...lane.underWay.values()]));
    },
  };
}
