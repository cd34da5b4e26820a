// The overview of operators: what the service does now, what waits for a person, and whether its own work is in time.
import { z } from 'zod';

const time = z.iso.datetime();
const count = z.int().min(0);

export const OverviewWaiting = z
  .strictObject({
    kind: z.enum(['deposit', 'credit', 'payout', 'dispute', 'machine', 'webhook', 'mail', 'loop', 'settings']),
    id: z.string().describe('Id of what waits'),
    what: z.string().describe('What waits, in words'),
    since: time.describe('When it began to wait'),
    command: z.string().describe('The command that shows it or decides about it'),
  })
  .meta({ id: 'OverviewWaiting' });
export type OverviewWaiting = z.infer<typeof OverviewWaiting>;

const OverviewLoop = z.strictObject({
  name: z.string(),
  state: z
    .enum(['ok', 'starting', 'late', 'failed'])
    .describe('late: no run has succeeded for too long. failed: the last run failed. starting: no run has ended yet'),
  error: z.string().nullable().describe('Why the last run failed'),
  period_seconds: z.number(),
  last_duration_ms: z.int().nullable(),
  last_success_at: time.nullable(),
});
export type OverviewLoop = z.infer<typeof OverviewLoop>;

const OverviewDue = z.strictObject({
  kind: z.string(),
  count: count.describe('Number of rows that are due now; at most 1000 are counted'),
  oldest_seconds: z.number().nullable().describe('How long the oldest one has been due; null if none is due'),
  per_minute: count
    .nullable()
    .describe(
      'Number of rows that all control planes together finished in the last minute. Null before the first count was written',
    ),
});

export const OverviewServer = z.strictObject({
  model: z.string(),
  server: z.string().describe('The address of a model server, or the replicas of the fleet'),
  is_well: z.boolean(),
  state: z.string().describe('State of the server, in words'),
});
export type OverviewServer = z.infer<typeof OverviewServer>;

export const OverviewTraffic = z.strictObject({
  model: z.string(),
  requests: count.describe('Requests that ended in the last five minutes; of more than 5000 the newest'),
  requests_per_second: z.number(),
  p95_ms: z
    .number()
    .nullable()
    .describe('95 % of the completely answered requests took at most this many milliseconds. Null if there were none'),
  failed: count.describe('Number of these requests that no model server answered'),
});
export type OverviewTraffic = z.infer<typeof OverviewTraffic>;

const OverviewDay = z.strictObject({
  from: time,
  until: time,
  spans: z
    .array(
      z.strictObject({
        state: z
          .enum(['up', 'silent', 'away', 'outage'])
          .describe(
            'up: all machines in use were linked. silent: some were not. away: no control plane ran. outage: rentals were not charged',
          ),
        from: time,
        until: time,
      }),
    )
    .describe(
      'First the spans of the connections, by minute, then the spans of the outages. Both can cover the same time. There is no span before the first recorded minute',
    ),
  silent_most: count.describe('The largest number of machines that were not connected in one minute, or are not now'),
  outages: count.describe(
    'Number of outages that began within this time or still last; at most 200 of each group are counted',
  ),
  credited: z.string().describe('What customers were credited at once for these outages, in dollars'),
});
export type OverviewDay = z.infer<typeof OverviewDay>;

export const Overview = z
  .strictObject({
    at: time.describe('When it was read'),
    version: z.string(),
    started_at: time.describe('When this process was started'),
    epoch: z.int().describe('Grows with every start on this database'),
    secondaries: z.int().describe('Control planes that serve beside this one'),
    paused: z
      .array(
        z.strictObject({
          what: z.enum(['launches', 'payouts']),
          since: time,
          by: z.string().describe('The operator who has given the reason'),
          reason: z.string(),
        }),
      )
      .describe('What operators have paused, in all control planes'),
    ledger: z.strictObject({
      faults: count.describe('Broken invariants that the last proof has found'),
      transfers: count.describe('Transfers that were proven'),
      new_proven_at: time.nullable().describe('When the new transfers were last proven'),
      whole_proven_at: time.nullable().describe('When the whole ledger was last proven'),
    }),
    machines: z.strictObject({
      listed: count.describe('Machines that may be rented or run rentals'),
      linked: count.describe('Number of these machines whose agent is connected'),
    }),
    gpus: z.strictObject({
      offered: count.describe('GPUs that are on the market now, rented or not'),
      rented: count.describe('GPUs of instances that run or are unreachable'),
      revenue_per_hour: z.string().describe('What the running instances pay in an hour, in dollars'),
    }),
    outages: z.strictObject({
      machines: count.describe('Machines on which rentals are not charged now'),
      rentals: count.describe('Rentals that are not charged now: an outage, a broken GPU, an outage of our own'),
    }),
    launches: z.strictObject({
      seconds: z
        .int()
        .describe('Length of the counted time until now, in seconds. Only launches in this time are counted'),
      asked: count.describe('Number of launches that were requested; at most the newest 2000 are counted'),
      ran: count,
      failed: count.describe('Number of launches that ended without ever running'),
      median_seconds: z
        .number()
        .nullable()
        .describe('Median time from the request until the instance runs, in seconds'),
    }),
    disk: z
      .strictObject({ used_bytes: z.int(), total_bytes: z.int() })
      .nullable()
      .describe('The disk of the database; null on PostgreSQL, whose server is not ours to measure'),
    database_bytes: z.int(),
    waiting: z.strictObject({
      count: count.describe('Number of things that wait for an operator; at most 50 of each kind are counted'),
      oldest: z.array(OverviewWaiting).describe('The oldest 20, oldest first'),
    }),
    loops: z.array(OverviewLoop),
    due: z.array(OverviewDue),
    models: z.array(OverviewServer),
    traffic: z.array(OverviewTraffic).describe('Requests to models, from the receipts'),
    last_day: OverviewDay,
  })
  .meta({ id: 'Overview' });
export type Overview = z.infer<typeof Overview>;
