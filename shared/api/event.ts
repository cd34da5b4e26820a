// What happened to the resources of an organisation, as a page and as the live stream (GET /v1/events).
import { z } from 'zod';
import { PageQuery } from './page.ts';

export const EventsQuery = PageQuery.extend({
  after: z
    .string()
    .regex(/^(evt_[0-9a-z]{26}|at_\d{1,15})$/, 'must be the id of an event, or an id that a stream sent')
    .optional()
    .describe(
      'The stream begins after the event with this id. Only for a stream. The header Last-Event-ID has precedence',
    ),
});

export const AccountEvent = z
  .strictObject({
    id: z.string().describe('Identifies the event, and is a position in the stream'),
    type: z.string().describe('`instance.running`, `machine.listed` and so on'),
    created_at: z.iso.datetime().describe('When it happened'),
    resource_type: z.string().describe('The first word of the type'),
    resource_id: z.string().describe('Id of the resource that has changed. For `session.*`, the id of the person'),
    status: z
      .string()
      .nullable()
      .describe('The new status of the resource. Null if the event did not change the status'),
    reason: z.string().nullable().describe('The reason for the event. Null if it needs no explanation'),
  })
  .meta({ id: 'AccountEvent' });
export type AccountEvent = z.infer<typeof AccountEvent>;

/** The data of an event in the stream. */
export const LiveEvent = AccountEvent.extend({
  resource: z
    .unknown()
    .nullable()
    .describe(
      'The resource as it is now, in the form of its own endpoint. Null if the resource is gone, and for `session.*`',
    ),
}).meta({ id: 'LiveEvent' });
export type LiveEvent = z.infer<typeof LiveEvent>;
