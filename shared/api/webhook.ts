// Webhooks: endpoints, the events that are sent to them, and the history of their delivery (specification 2.9, 4.7 and 6).
import { z } from 'zod';
import { Instance } from './instance.ts';

/** The four public event types. Events of other types are never sent (specification 6.1). */
const WEBHOOK_EVENT_TYPES = [
  'instance.creating',
  'instance.running',
  'instance.terminated',
  'instance.failed',
] as const;
export const WebhookEventType = z.enum(WEBHOOK_EVENT_TYPES);
export type WebhookEventType = z.infer<typeof WebhookEventType>;

const URL_CHARS_MAX = 2_048;

const Url = z
  .url({ protocol: /^https$/, error: 'must be an https URL' })
  .max(URL_CHARS_MAX, `must have at most ${URL_CHARS_MAX} characters`)
  .describe(
    'URL to which events are posted. It must be https with a public address. The port must be 443 or 8443, unless the operator allows more ports',
  );

const EventTypes = z
  .array(WebhookEventType)
  .min(1)
  .max(WEBHOOK_EVENT_TYPES.length)
  .refine((types) => new Set(types).size === types.length, 'must not name a type twice')
  .describe('Types of the events that are sent');

export const WebhookEndpoint = z
  .strictObject({
    id: z.string().describe('Identifies the endpoint'),
    url: Url,
    event_types: EventTypes,
    enabled: z.boolean().describe('Whether events are sent. While it is false, deliveries wait, each for up to a day'),
    status: z
      .enum(['healthy', 'degraded', 'disabled'])
      .describe(
        'degraded: attempts failed again and again, or the endpoint answered 410. One delivery is tried every five minutes until one succeeds, and every delivery still gets all its attempts within a day. disabled: you disabled the endpoint',
      ),
    status_reason: z.string().optional().describe('Why it is degraded or disabled'),
    previous_secret_until: z.iso
      .datetime()
      .optional()
      .describe(
        'Time until which deliveries carry a second signature, made with the previous secret. Present only after a rotation of the secret',
      ),
    created_at: z.iso.datetime().describe('When it was made'),
  })
  .meta({ id: 'WebhookEndpoint' });
export type WebhookEndpoint = z.infer<typeof WebhookEndpoint>;

/** The answer to a creation and to a rotation. */
export const NewWebhookEndpoint = WebhookEndpoint.extend({
  secret: z
    .string()
    .regex(/^[0-9a-f]{64}$/)
    .describe(
      'Key of the signatures. The key is these 64 characters themselves, not the bytes that they encode. It is shown once',
    ),
}).meta({ id: 'NewWebhookEndpoint' });
export type NewWebhookEndpoint = z.infer<typeof NewWebhookEndpoint>;

/** Body of POST /v1/webhook-endpoints. */
export const CreateWebhookEndpoint = z
  .strictObject({ url: Url, event_types: EventTypes })
  .meta({ id: 'CreateWebhookEndpoint' });
export type CreateWebhookEndpoint = z.infer<typeof CreateWebhookEndpoint>;

/** Body of PATCH /v1/webhook-endpoints/{id}. */
export const ChangeWebhookEndpoint = z
  .strictObject({
    url: Url.optional(),
    event_types: EventTypes.optional(),
    enabled: z
      .boolean()
      .optional()
      .describe('false: deliveries wait. true: deliveries continue, and a degraded endpoint is tried at once'),
    replay_since: z.iso
      .datetime({ offset: true })
      .optional()
      .describe(
        'Repeats all deliveries that were given up, for events since this time. The event ids stay the same. 500 deliveries begin at once, and the rest follow in groups soon after',
      ),
  })
  .meta({ id: 'ChangeWebhookEndpoint' });
export type ChangeWebhookEndpoint = z.infer<typeof ChangeWebhookEndpoint>;

const WebhookAttempt = z
  .strictObject({
    n: z.int().describe('Number of the attempt, counted from 1'),
    trigger: z
      .enum(['schedule', 'manual', 'probe'])
      .describe(
        'schedule: a planned attempt. manual: a retry that was requested. probe: a trial attempt to a degraded endpoint',
      ),
    started_at: z.iso.datetime().describe('When it began'),
    duration_ms: z.int().describe('How long it took'),
    response_status: z.int().nullable().describe('What the endpoint answered; null if no answer came'),
    response_body_excerpt: z.string().nullable().describe('The beginning of the answer, up to 1 KiB as text'),
    truncated: z.boolean().describe('The answer was longer than the excerpt'),
    error_code: z
      .enum(['timeout', 'dns', 'connect', 'tls', 'protocol', 'blocked_address', 'http_status'])
      .nullable()
      .describe(
        'Why the attempt failed. Null if it succeeded. http_status: the answer was not 2xx; redirects count as failures too',
      ),
    error_detail: z.string().nullable().describe('The reason in words'),
    remote_ip: z
      .string()
      .nullable()
      .describe('The IP address to which the attempt connected. Null if there was no connection'),
  })
  .meta({ id: 'WebhookAttempt' });
export type WebhookAttempt = z.infer<typeof WebhookAttempt>;

export const WebhookDelivery = z
  .strictObject({
    id: z.string().describe('Identifies the delivery of one event to one endpoint'),
    endpoint_id: z.string().describe('The endpoint'),
    event_id: z.string().describe('Sent as Svc-Event-Id with every attempt'),
    event_type: WebhookEventType.describe('What happened'),
    status: z
      .enum(['pending', 'succeeded', 'retrying', 'dead_lettered'])
      .describe(
        'pending: the delivery was not tried yet. retrying: the delivery will be tried again, after a failure or after it was given up before. dead_lettered: the delivery was given up',
      ),
    attempts: z.int().describe('Attempts so far'),
    max_attempts: z
      .int()
      .describe(
        'The delivery is given up after this number of attempts. If the endpoint was disabled for most of the day after the event, the delivery is given up at the end of that day',
      ),
    next_attempt_at: z.iso
      .datetime()
      .nullable()
      .describe('Earliest time of the next attempt. Null if no attempt is planned'),
    created_at: z.iso.datetime().describe('When the event happened'),
    completed_at: z.iso.datetime().nullable().describe('When it succeeded or was given up'),
    is_test: z.boolean().describe('True if the delivery is a test that you requested. No instance has changed'),
    attempt_history: z
      .array(WebhookAttempt)
      .describe('The last ten attempts, oldest first. One delivery that is read by its id has every attempt'),
  })
  .meta({ id: 'WebhookDelivery' });
export type WebhookDelivery = z.infer<typeof WebhookDelivery>;

/** One delivery with what was sent. */
export const WebhookDeliveryDetail = WebhookDelivery.extend({
  body: z.string().describe('The body that every attempt posts, byte for byte. The signature is computed over it'),
  attempt_history: z
    .array(
      WebhookAttempt.extend({
        request_url: z
          .string()
          .nullable()
          .describe('URL to which the attempt was posted. Null for old attempts, for which it was not stored'),
        request_headers: z
          .record(z.string(), z.string())
          .nullable()
          .describe(
            'The headers that were sent. The signatures are hidden. Null for old attempts, for which the headers were not stored',
          ),
      }).meta({ id: 'WebhookAttemptDetail' }),
    )
    .describe('Every attempt, oldest first'),
}).meta({ id: 'WebhookDeliveryDetail' });
export type WebhookDeliveryDetail = z.infer<typeof WebhookDeliveryDetail>;

/** Body of POST /v1/webhook-endpoints/{id}/test. */
export const TestWebhookEndpoint = z
  .strictObject({
    event_type: WebhookEventType.optional().describe(
      'One of the `event_types` of the endpoint. The default is the first one',
    ),
  })
  .meta({ id: 'TestWebhookEndpoint' });
export type TestWebhookEndpoint = z.infer<typeof TestWebhookEndpoint>;

/** The instance in an event: `version`, and the fields that do not depend on the time at which somebody reads them. */
export const WebhookInstance = Instance.pick({
  id: true,
  status: true,
  gpu_type: true,
  gpu_count: true,
  region: true,
  tier: true,
  name: true,
  price_per_hour: true,
  created_at: true,
  ready_at: true,
  terminated_at: true,
  status_reason: true,
}).extend({
  version: z
    .int()
    .describe(
      'Number that grows with every change of this instance. Ignore an event whose `version` is lower than one that you have already seen',
    ),
});

/** The body of a delivery. */
export const WebhookEvent = z
  .strictObject({
    id: z.string().describe('Id of the event, also in the Svc-Event-Id header'),
    type: WebhookEventType.describe('What happened'),
    created_at: z.iso.datetime().describe('When it happened'),
    test: z
      .literal(true)
      .optional()
      .describe(
        'True if the event is a test that you requested. Its instance does not exist. Absent in all other events',
      ),
    data: z
      .strictObject({
        instance: WebhookInstance.describe(
          'The instance as it was at the time of the event. Before the instance is placed, `price_per_hour` is 0, and `region` is the requested region. If none was requested, `region` is that of the contract (tier reserved) or of the cheapest offer',
        ),
      })
      .describe('What the event is about'),
  })
  .meta({ id: 'WebhookEvent' });
export type WebhookEvent = z.infer<typeof WebhookEvent>;
