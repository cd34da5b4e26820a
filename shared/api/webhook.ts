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
  .describe('Where events are posted to: https, a public address, port 443 or 8443 unless the operator allows more');

const EventTypes = z
  .array(WebhookEventType)
  .min(1)
  .max(WEBHOOK_EVENT_TYPES.length)
  .refine((types) => new Set(types).size === types.length, 'must not name a type twice')
  .describe('What is sent');

export const WebhookEndpoint = z
  .strictObject({
    id: z.string().describe('Identifies the endpoint'),
    url: Url,
    event_types: EventTypes,
    enabled: z.boolean().describe('Whether events are sent. While it is false deliveries wait, each for up to a day'),
    status: z
      .enum(['healthy', 'degraded', 'disabled'])
      .describe(
        'degraded: it fails again and again, or answered 410; one delivery is tried every five minutes until one succeeds, and all get their attempts within a day. disabled: by you',
      ),
    status_reason: z.string().optional().describe('Why it is degraded or disabled'),
    previous_secret_until: z.iso
      .datetime()
      .optional()
      .describe('After a rotation: deliveries carry a second signature by the secret before, until then'),
    created_at: z.iso.datetime().describe('When it was made'),
  })
  .meta({ id: 'WebhookEndpoint' });
export type WebhookEndpoint = z.infer<typeof WebhookEndpoint>;

/** The answer to a creation and to a rotation. */
export const NewWebhookEndpoint = WebhookEndpoint.extend({
  secret: z
    .string()
    .regex(/^[0-9a-f]{64}$/)
    .describe('Key of the signatures: these 64 characters as they stand, not the bytes that they encode. Shown once'),
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
      .describe('false: deliveries wait. true: they go on, and a degraded endpoint is tried at once'),
    replay_since: z.iso
      .datetime({ offset: true })
      .optional()
      .describe(
        'Deliveries of events from then on that were given up are tried anew, with the same event ids: 500 of them at once, the rest in pieces soon after',
      ),
  })
  .meta({ id: 'ChangeWebhookEndpoint' });
export type ChangeWebhookEndpoint = z.infer<typeof ChangeWebhookEndpoint>;

const WebhookAttempt = z
  .strictObject({
    n: z.int().describe('Counts from 1'),
    trigger: z
      .enum(['schedule', 'manual', 'probe'])
      .describe('manual: a retry was asked for; probe: the one try of a degraded endpoint'),
    started_at: z.iso.datetime().describe('When it began'),
    duration_ms: z.int().describe('How long it took'),
    response_status: z.int().nullable().describe('What the endpoint answered; null if no answer came'),
    response_body_excerpt: z.string().nullable().describe('The beginning of the answer, up to 1 KiB as text'),
    truncated: z.boolean().describe('The answer was longer than the excerpt'),
    error_code: z
      .enum(['timeout', 'dns', 'connect', 'tls', 'protocol', 'blocked_address', 'http_status'])
      .nullable()
      .describe('Why it failed; null if it succeeded. http_status: any answer but 2xx, redirects too'),
    error_detail: z.string().nullable().describe('The reason in words'),
    remote_ip: z.string().nullable().describe('The address that was connected to'),
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
        'pending: not tried yet; retrying: to be tried again, after a failure or after it was given up; dead_lettered: given up',
      ),
    attempts: z.int().describe('Attempts so far'),
    max_attempts: z
      .int()
      .describe('Given up after so many; or a day after the event, if the endpoint was disabled for most of it'),
    next_attempt_at: z.iso.datetime().nullable().describe('Not before then; null if none is planned'),
    created_at: z.iso.datetime().describe('When the event happened'),
    completed_at: z.iso.datetime().nullable().describe('When it succeeded or was given up'),
    is_test: z.boolean().describe('You asked for it: no instance has changed'),
    attempt_history: z.array(WebhookAttempt).describe('Every attempt, oldest first'),
  })
  .meta({ id: 'WebhookDelivery' });
export type WebhookDelivery = z.infer<typeof WebhookDelivery>;

/** One delivery with what was sent. */
export const WebhookDeliveryDetail = WebhookDelivery.extend({
  body: z.string().describe('What is posted at every attempt, byte for byte. The signature is computed over it'),
  attempt_history: z
    .array(
      WebhookAttempt.extend({
        request_url: z
          .string()
          .nullable()
          .describe('Where it was posted to; null for attempts from before it was kept'),
        request_headers: z
          .record(z.string(), z.string())
          .nullable()
          .describe('The headers that were sent, with the signatures hidden; null for attempts from before'),
      }).meta({ id: 'WebhookAttemptDetail' }),
    )
    .describe('Every attempt, oldest first'),
}).meta({ id: 'WebhookDeliveryDetail' });
export type WebhookDeliveryDetail = z.infer<typeof WebhookDeliveryDetail>;

/** Body of POST /v1/webhook-endpoints/{id}/test. */
export const TestWebhookEndpoint = z
  .strictObject({
    event_type: WebhookEventType.optional().describe('One that the endpoint receives; default: the first of them'),
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
    .describe('Grows with every change of this instance: drop an event that is older than what you have seen'),
});

/** The body of a delivery. */
export const WebhookEvent = z
  .strictObject({
    id: z.string().describe('The same in Svc-Event-Id'),
    type: WebhookEventType.describe('What happened'),
    created_at: z.iso.datetime().describe('When it happened'),
    test: z.literal(true).optional().describe('Only in a test that you asked for: the instance does not exist'),
    data: z
      .strictObject({
        instance: WebhookInstance.describe(
          'The instance as it was then. Before it is placed, `region` is the one asked for, or that of the cheapest offer, and `price_per_hour` is 0',
        ),
      })
      .describe('What it is about'),
  })
  .meta({ id: 'WebhookEvent' });
export type WebhookEvent = z.infer<typeof WebhookEvent>;
