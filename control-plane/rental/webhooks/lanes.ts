// Lanes: what is under way to each endpoint. They do not wait for each other, and no job is started twice.
import type { Log } from '../../../shared/log.ts';

export interface Lanes {
  /** Starts what is due in this lane, now and whenever a job of it ends. Returns at once. */
  look(key: string): void;
  isUnderWay(key: string, id: string): boolean;
  /** How many lanes may be looked at, those that are busy included; 0 where nothing more may start. */
  limit(): number;
  /** Starts nothing more; resolves when everything under way has ended. */
  stop(): Promise<void>;
}

interface LanesOptions<Job> {
  /** Jobs under way in all lanes. */
  max: number;
  log: Log;
  /** What is due in a lane with `busy` jobs under way (they may be among it), and how many may be under way at once. */
  due(key: string, busy: number): Promise<{ slots: number; jobs: Job[] }>;
  /** Never throws. */
  carry(job: Job): Promise<void>;
}

interface Lane {
  key: string;
  underWay: Map<string, Promise<void>>;
  /** One look at a time, or two would start the same job. */
  looking: boolean;
  lookAgain: boolean;
}

export function openLanes<Job extends { id: string }>(options: LanesOptions<Job>): Lanes {
  const lanes = new Map<string, Lane>();
  let underWay = 0;
  let stopped = false;

  const start = (lane: Lane, job: Job): void => {
    underWay += 1;
    const work = options.carry(job).finally(() => {
      underWay -= 1;
      lane.underWay.delete(job.id);
      void look(lane);
    });
    lane.underWay.set(job.id, work);
  };

  const startDue = async (lane: Lane): Promise<void> => {
    // A job that ends while we read may still look due in what we have read.
    const busy = new Set(lane.underWay.keys());
    const { slots, jobs } = await options.due(lane.key, busy.size);
    for (const job of jobs) {
      if (lane.underWay.size >= slots || underWay >= options.max || stopped) return;
      if (!busy.has(job.id)) start(lane, job);
    }
  };

  const look = async (lane: Lane): Promise<void> => {
    lane.lookAgain = true;
    if (lane.looking) return;
    lane.looking = true;
    try {
      while (lane.lookAgain && !stopped) {
        lane.lookAgain = false;
        await startDue(lane);
      }
    } catch (error) {
      options.log.error({ lane: lane.key, err: error }, 'what is due could not be read; the next period tries again');
    }
    lane.looking = false;
    if (lane.underWay.size === 0) lanes.delete(lane.key);
  };

  return {
    look: (key) => {
      const lane = lanes.get(key) ?? { key, underWay: new Map(), looking: false, lookAgain: false };
      lanes.set(key, lane);
      void look(lane);
    },
    isUnderWay: (key, id) => lanes.get(key)?.underWay.has(id) ?? false,
    limit: () => (underWay < options.max && !stopped ? options.max - underWay + lanes.size : 0),
    stop: async () => {
      stopped = true;
      await Promise.all([...lanes.values()].flatMap((lane) => [...lane.underWay.values()]));
    },
  };
}
