// What happened to an instance, and what its container wrote (GET /v1/instances/{id}/events and /logs).
import { z } from 'zod';
import { LOG_LINES_DEFAULT, LOG_LINES_MAX } from '../limits.ts';
import { LogLine } from '../protocol/workload.ts';

/** What the control plane keeps of the log of an instance that ended with its program, of at most LOG_LINES_MAX lines. */
export const KEPT_LOG_KIB = 256;
/** Such logs of one organisation: programs that end at once, again and again, must not fill the database. */
export const KEPT_LOGS_PER_ORG_MAX = 500;
/** Somebody who was away for a week still finds what a program has printed. */
export const KEPT_LOG_DAYS = 7;

export const InstanceEvent = z
  .strictObject({
    id: z.string().describe('Identifies the event'),
    type: z.string().describe('`instance.creating`, `instance.starting`, `instance.running` and so on'),
    created_at: z.iso.datetime().describe('When it happened'),
    status: z.string().describe('The status that it led to'),
    reason: z.string().nullable().describe('The reason for the event. Null if it needs no explanation'),
    since: z.iso
      .datetime()
      .nullable()
      .describe(
        'Time from which the event counts for billing: the last proof of life before an outage, or the first one after it. Null if this time is `created_at`',
      ),
  })
  .meta({ id: 'InstanceEvent' });
export type InstanceEvent = z.infer<typeof InstanceEvent>;

export const LogQuery = z.strictObject({
  tail: z.coerce
    .number()
    .int()
    .min(0)
    .max(LOG_LINES_MAX)
    .default(LOG_LINES_DEFAULT)
    .describe('Number of last lines to send'),
  follow: z
    .enum(['true', 'false'])
    .default('false')
    .describe(
      '`true`: the answer is a stream of server-sent events. It begins with the last lines, and each new line follows as it is written',
    ),
  since: z.iso
    .datetime({ offset: true })
    .optional()
    .describe('Only lines after this time, such as the `at` of the last one seen'),
});
export type LogQuery = z.infer<typeof LogQuery>;

export const InstanceLogLine = LogLine.meta({ id: 'LogLine' });
export const InstanceLog = z
  .strictObject({
    data: z.array(InstanceLogLine).describe('The lines, oldest first'),
  })
  .meta({ id: 'InstanceLog' });
export type InstanceLog = z.infer<typeof InstanceLog>;
