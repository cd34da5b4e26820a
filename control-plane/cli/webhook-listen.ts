// `svc webhook listen`: posts the events of the live stream to an address of this machine, as a webhook endpoint would get them.
import { type Command, InvalidArgumentError } from 'commander';
import { z } from 'zod';
import { type WebhookEvent, WebhookEventType, WebhookInstance } from '../../shared/api/webhook.ts';
import { codeOf, messageOf } from '../../shared/errors.ts';
import { WEBHOOK_STATUS_MS_MAX } from '../../shared/limits.ts';
import { webhookHeaders } from '../../shared/webhook-signature.ts';
import type { Client } from './client.ts';
import { type CommonOptions, signedIn, type SvcDeps, withCommon } from './command.ts';
import { eventsOf, type ReceivedEvent } from '../../shared/event-reader.ts';
import { interruption, SvcError } from './exit.ts';

interface ListenOptions extends CommonOptions {
  forward: string;
  events: WebhookEventType[];
  secret?: string;
  since?: number;
}

const SECRET_BYTES = 32;
/** The first wait before the stream is opened again. The wait doubles with each failure, up to WAIT_MS_MAX. */
const WAIT_MS = 1_000;
const WAIT_MS_MAX = 30_000;

export function addListenCommand(webhook: Command, deps: SvcDeps): void {
  withCommon(webhook.command('listen'))
    .description('post events to an address of this machine as they happen, signed like those of a webhook endpoint')
    .requiredOption('--forward <url>', 'where they are posted to, such as http://localhost:3000/hook', address)
    .option('--events <types>', 'event types, separated by commas', types, WebhookEventType.options)
    .option('--secret <secret>', 'the key of the signatures, 64 hexadecimal characters; a new one without it', secret)
    .option('--since <minutes>', 'begin with the events of the last minutes', minutes)
    .action((options: ListenOptions) => listen(options, deps));
}

/** Forwards events until Ctrl-C, or until the API refuses the stream. */
async function listen(options: ListenOptions, deps: SvcDeps): Promise<void> {
  const { clock, ids, interrupted, tell } = deps;
  const client = signedIn(deps, options);
  const key = options.secret ?? Buffer.from(ids.secret(SECRET_BYTES), 'base64url').toString('hex');
  tell(`Events are posted to ${options.forward}, signed with the secret ${key}\n`);
  const position = { id: options.since === undefined ? undefined : `at_${clock.now() - options.since * 60_000}` };
  for (let waitMs = WAIT_MS; !interrupted.aborted; waitMs = Math.min(2 * waitMs, WAIT_MS_MAX)) {
    try {
      for await (const event of streamAfter(client, position.id, interrupted)) {
        waitMs = WAIT_MS;
        if (event.type === 'resync') tell('Events are missing: too many have happened since the last one.\n');
        await forward(event, { ...options, key }, deps);
        position.id = event.id ?? position.id;
      }
    } catch (error) {
      if (interrupted.aborted || isFinal(error)) throw error;
      tell(`The stream of events broke off, and is opened again: ${messageOf(error)}\n`);
    }
    await clock.sleep(waitMs, interrupted);
  }
  throw interruption();
}

/** True if the API refuses the stream, so that another try is useless. Other failures, such as a restart of the API, may pass. */
function isFinal(error: unknown): boolean {
  return error instanceof SvcError && error.refusal.isFinal === true;
}

async function* streamAfter(
  client: Client,
  after: string | undefined,
  signal: AbortSignal,
): AsyncGenerator<ReceivedEvent> {
  const position = after === undefined ? {} : { 'last-event-id': after };
  const headers = { accept: 'text/event-stream', ...position };
  yield* eventsOf(await client.open({ method: 'GET', path: '/events', headers, signal }));
}

/** An event of the stream about an instance. */
const Streamed = z.looseObject({
  id: z.string(),
  type: WebhookEventType,
  created_at: z.string(),
  status: z.string().nullable(),
  resource: z.record(z.string(), z.unknown()),
});
const Sent = WebhookInstance.strip();

/** The event as a webhook endpoint gets it; undefined if endpoints do not get this event, or if it is one of a newer API. */
function webhookEventOf({ data }: ReceivedEvent, { tell }: Pick<SvcDeps, 'tell'>): WebhookEvent | undefined {
  const streamed = Streamed.safeParse(data).data;
  if (streamed === undefined) return undefined;
  const { id, type, created_at: createdAt, status, resource } = streamed;
  // The stream has no version of the instance. The time of the event is used instead, because it grows in the same order.
  const version = Date.parse(createdAt);
  const instance = Sent.safeParse({ ...resource, version, ...(status === null ? {} : { status }) }).data;
  // If it ended the stream, each new stream would begin with it, and no later event would be forwarded.
  if (instance === undefined) {
    tell(`${id} cannot be forwarded: this program does not know its form.\n`);
    return undefined;
  }
  return { id, type, created_at: createdAt, data: { instance } };
}

async function forward(
  received: ReceivedEvent,
  { forward: url, events, key, json }: ListenOptions & { key: string },
  { clock, fetch, print, tell }: SvcDeps,
): Promise<void> {
  const event = webhookEventOf(received, { tell });
  if (event === undefined || !events.includes(event.type)) return;
  const body = JSON.stringify(event);
  const headers = webhookHeaders({ id: event.id, body }, [key], clock.now());
  const signal = AbortSignal.timeout(WEBHOOK_STATUS_MS_MAX);
  const outcome = await fetch(url, { method: 'POST', headers, body, redirect: 'manual', signal }).then(
    async (answer) => {
      // Until the body is read or cancelled, its connection stays in use.
      await answer.body?.cancel();
      return String(answer.status);
    },
    (error: unknown) => failureOf(error),
  );
  const line = `${event.created_at}  ${event.type}  ${event.data.instance.id}  ${event.id}  ${outcome}\n`;
  if (json !== true) return print(line);
  print(`${body}\n`);
  tell(line);
}

function failureOf(error: unknown): string {
  const cause = error instanceof Error && error.cause !== undefined ? error.cause : error;
  return `failed: ${codeOf(cause) ?? messageOf(cause)}`;
}

function address(text: string): string {
  if (!URL.canParse(text) || !/^https?:$/.test(new URL(text).protocol))
    throw new InvalidArgumentError('must be a URL like http://localhost:3000/hook');
  return text;
}

function types(text: string): WebhookEventType[] {
  const list = z
    .array(WebhookEventType)
    .min(1)
    .safeParse(text.split(',').map((type) => type.trim()));
  if (!list.success) throw new InvalidArgumentError(`must be some of ${WebhookEventType.options.join(', ')}`);
  return list.data;
}

function secret(text: string): string {
  if (!/^[0-9a-f]{64}$/.test(text)) throw new InvalidArgumentError('must be 64 hexadecimal characters');
  return text;
}

function minutes(text: string): number {
  const count = Number(text);
  if (!Number.isInteger(count) || count < 1) throw new InvalidArgumentError('must be a whole number of minutes');
  return count;
}
