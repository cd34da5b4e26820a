// Each parser that meets a stranger's text reads the worst text of the largest size that is let in without holding up everyone else.
import { expect, test } from 'vitest';
import { networkOf } from '../../shared/client-network.ts';
import { ChatRequest } from '../../shared/api/chat.ts';
import { EmbeddingsRequest } from '../../shared/api/embeddings.ts';
import { CreateInstance } from '../../shared/api/instance.ts';
import { CreateWebhookEndpoint } from '../../shared/api/webhook.ts';
import { parseJson } from '../../shared/json.ts';
import {
  BODY_BYTES_MAX,
  HEADER_BYTES_MAX,
  REGISTRY_JSON_BYTES_MAX,
  REGISTRY_JSON_VALUES_MAX,
  INFERENCE_BODY_BYTES_MAX,
  JSON_VALUES_MAX,
  LINK_HELLO_BYTES_MAX,
  LINK_MESSAGE_BYTES_MAX,
  LINK_MESSAGE_VALUES_MAX,
  STREAM_EVENT_BYTES_MAX,
  TRAINING_LINE_BYTES_MAX,
} from '../../shared/limits.ts';
import { EnrollRequest } from '../../shared/protocol/inventory.ts';
import { AgentMessage, decodeMessage } from '../../shared/protocol/link.ts';
import { LOG_LINE_BYTES_MAX } from '../../shared/protocol/workload.ts';
import { readPublicKey } from '../../control-plane/base/accounts/public-key.ts';
import { openCheck } from '../../control-plane/models/files/check.ts';
import { eventData } from '../../control-plane/models/gateway/chat-wire.ts';
import { readAppHost } from '../../control-plane/rental/endpoints/app-address.ts';
import { enter } from '../../control-plane/rental/edge/access.ts';
import { requestHeaders, responseHeaders } from '../../control-plane/rental/edge/app-headers.ts';
import { readChallenge, readToken, tokenUrl } from '../../control-plane/rental/launch/authorization.ts';
import { readConfig, readManifest } from '../../control-plane/rental/launch/manifests.ts';
import { parseReference } from '../../control-plane/rental/launch/reference.ts';
import { linesOf } from '../../control-plane/rental/journal/logs.ts';
import { readSources } from '../kit/sources.ts';

const LONGEST_MS = 20;
const TRIES_MAX = 20;

/** `wrap` puts a text to the place that a stranger can fill, if that is not the whole. */
interface Parser {
  name: string;
  chars: number;
  read(text: string): unknown;
  worst?: (chars: number) => string[];
}

const bodyOf = (schema: { safeParse(value: unknown): unknown }, name: string, chars = BODY_BYTES_MAX): Parser => ({
  name,
  chars,
  read: (text) => schema.safeParse(parseJson(text, JSON_VALUES_MAX)),
  worst: jsonTexts,
});
const headersOf = (name: string, value: string): string[] => [name, value];
const facts = { clientIp: '192.0.2.1', host: 'x', isUpgrade: false };

const PARSERS: Parser[] = [
  {
    name: 'JSON of any length',
    chars: INFERENCE_BODY_BYTES_MAX,
    read: (text) => parseJson(text, JSON_VALUES_MAX),
    worst: jsonTexts,
  },
  bodyOf(ChatRequest, 'body of a chat', INFERENCE_BODY_BYTES_MAX),
  bodyOf(EmbeddingsRequest, 'body of embeddings', INFERENCE_BODY_BYTES_MAX),
  bodyOf(CreateInstance, 'body of a launch'),
  bodyOf(CreateWebhookEndpoint, 'body of a webhook endpoint'),
  bodyOf(EnrollRequest, 'body of an enrolment'),
  {
    name: 'first message of a link',
    chars: LINK_HELLO_BYTES_MAX,
    read: (text) => decodeMessage(AgentMessage, text, LINK_MESSAGE_VALUES_MAX),
    worst: linkTexts,
  },
  {
    name: 'message of a link',
    chars: LINK_MESSAGE_BYTES_MAX,
    read: (text) => decodeMessage(AgentMessage, text, LINK_MESSAGE_VALUES_MAX),
    worst: linkTexts,
  },
  {
    name: 'line of a training file',
    chars: TRAINING_LINE_BYTES_MAX,
    read: (text) => {
      const check = openCheck();
      check.take(Buffer.from(text));
      return check.report();
    },
    worst: (chars) => [...jsonTexts(chars), ...jsonTexts(chars - 20).map((text) => `{"messages":${text}}`)],
  },
  {
    name: 'manifest of an image',
    chars: REGISTRY_JSON_BYTES_MAX,
    read: (text) => readManifest(Buffer.from(text)),
    worst: manifestTexts,
  },
  {
    name: 'configuration of an image',
    chars: REGISTRY_JSON_BYTES_MAX,
    read: (text) => readConfig(Buffer.from(text)),
    worst: jsonTexts,
  },
  {
    name: 'answer of a token server',
    chars: 64 * 1024,
    read: (text) => readToken(Buffer.from(text)),
    worst: jsonTexts,
  },
  { name: 'challenge of a registry', chars: HEADER_BYTES_MAX, read: readChallenge },
  {
    name: 'parameters of a challenge',
    chars: 2_048,
    read: (text) => {
      const challenge = readChallenge(`Bearer ${text}`);
      return challenge?.scheme === 'bearer' ? tokenUrl(challenge, 'a/b') : undefined;
    },
  },
  { name: 'image reference', chars: BODY_BYTES_MAX, read: parseReference },
  { name: 'SSH public key', chars: 16_384, read: readPublicKey },
  { name: 'Host header', chars: HEADER_BYTES_MAX, read: (text) => readAppHost(text, 'apps.example') },
  {
    name: 'Authorization of an application',
    chars: HEADER_BYTES_MAX,
    read: (text) => enter({ authorization: text, cookie: text }, { user: 'u', password: 'p' }, 'h'),
  },
  {
    name: 'headers of a request to an application',
    chars: HEADER_BYTES_MAX,
    read: (text) => {
      const raw = [...headersOf('Connection', text), ...headersOf('Cookie', text)];
      return requestHeaders(raw, { ...facts, without: ['authorization'], withoutCookie: '__Host-svc-login' });
    },
  },
  {
    name: 'headers of an answer of an application',
    chars: HEADER_BYTES_MAX,
    read: (text) => responseHeaders([...headersOf('Connection', text), ...headersOf('Set-Cookie', text)]),
  },
  { name: 'address of a client', chars: HEADER_BYTES_MAX, read: networkOf },
];

test.each(PARSERS)('$name: the worst text takes no longer than 20 ms', async ({ chars, read, worst = plainTexts }) => {
  const slow: string[] = [];
  for (const text of worst(chars)) {
    const ms = await shortestMs(() => read(text));
    if (ms > LONGEST_MS) slow.push(`${text.slice(0, 60)}... (${text.length} characters): ${ms.toFixed(1)} ms`);
  }
  expect(slow).toEqual([]);
});

/** Parsers of a stream keep what has no end yet. */
const STREAMS: {
  name: string;
  bytes: number;
  rests: string[];
  read(body: AsyncIterable<Buffer>): AsyncIterable<unknown>;
}[] = [
  { name: 'events of a model server', bytes: STREAM_EVENT_BYTES_MAX, rests: ['x', '\r', 'x\n'], read: eventData },
  { name: 'lines of a log', bytes: LOG_LINE_BYTES_MAX, rests: ['x', '\r'], read: (body) => linesOf(body, undefined) },
];
const PIECES = 1_000;

test.each(STREAMS)(
  '$name: a text without an end and 1,000 pieces of a byte take no longer than 20 ms',
  async (stream) => {
    for (const text of stream.rests) {
      const rest = Buffer.from(text.repeat((stream.bytes - PIECES) / text.length));
      let given = 0;
      async function* body(): AsyncGenerator<Buffer> {
        yield rest;
        for (given = 0; given < PIECES; given += 1) yield Buffer.from('x');
      }
      const readAll = async (): Promise<void> => {
        for await (const _ of stream.read(body()));
      };
      expect(await shortestMs(readAll)).toBeLessThan(LONGEST_MS);
      expect(given).toBe(PIECES);
    }
  },
);

/** What a quiet machine takes to parse the yardstick. */
const YARDSTICK_MS = 8;
const YARDSTICK = `"${'\\n'.repeat(INFERENCE_BODY_BYTES_MAX / 2)}"`;

/** The time in milliseconds of a quiet machine. If the machine is busy, a yardstick measures it. A call that takes too long is repeated. */
async function shortestMs(call: () => unknown): Promise<number> {
  let shortest = Number.POSITIVE_INFINITY;
  for (let tries = 0; tries < TRIES_MAX && shortest > LONGEST_MS; tries += 1) {
    const ms = await processorMs(call);
    const slowness = ms > LONGEST_MS ? Math.max(1, (await processorMs(() => JSON.parse(YARDSTICK))) / YARDSTICK_MS) : 1;
    shortest = Math.min(shortest, ms / slowness);
  }
  return shortest;
}

/** Processor time of this thread. */
async function processorMs(call: () => unknown): Promise<number> {
  const before = process.threadCpuUsage();
  try {
    await call();
  } catch {
    // A refusal is an answer.
  }
  const { user, system } = process.threadCpuUsage(before);
  return (user + system) / 1000;
}

/** Long runs of what patterns repeat, each followed by what does not fit. */
function plainTexts(chars: number): string[] {
  const pieces = [
    'a',
    '0',
    ' ',
    '\t',
    ',',
    ';',
    '=',
    '"',
    '\\',
    '/',
    '.',
    '-',
    ':',
    '@',
    '[',
    '%',
    'a=',
    'a="',
    'a,',
    'a ',
    '; domain',
    'a.',
    'a-',
    'é',
  ];
  return pieces.flatMap((piece) => {
    const run = piece.repeat(Math.floor((chars - 2) / piece.length));
    return [run, `${run}!`, `x${run}`, `Bearer ${run}`.slice(0, chars)];
  });
}

/** Shapes that cost JSON.parse, or a schema, the most for their length; as long as it may be, and with as many values as there may be. */
function jsonTexts(chars: number): string[] {
  const repeat = (piece: string, count: number): string => piece.repeat(Math.max(0, Math.floor(count)));
  const shapes = (count: number): string[] => [
    `[${repeat('0,', count)}0]`,
    `[${repeat('{},', count)}0]`,
    `[${Array.from({ length: count / 3 }, (_, i) => `{"${i.toString(36)}":0}`).join(',')}]`,
    `{${Array.from({ length: count / 2 }, (_, i) => `"${i.toString(36)}":0`).join(',')}}`,
    `${repeat('[', count)}${repeat(']', count)}`,
    `{"messages":[${repeat('{},', count / 2)}{}],"input":[${repeat('0,', count / 4)}0]}`,
    `{"model":"m","messages":[${repeat('{"role":"user","content":"a"},', count / 8)}{}]}`,
    `{"model":"m","input":[${repeat('"a",', count)}""]}`,
    `{"gpu_type":"a","env":{${Array.from({ length: count / 2 }, (_, i) => `"A${i}":"b"`).join(',')}}}`,
    `{"gpu_type":"a","ports":[${repeat('{"port":1},', count / 3)}{}],"ssh_key_ids":[${repeat('"a",', count / 2)}"a"]}`,
    `{"url":"a","event_types":[${repeat('"a",', count)}"a"]}`,
    `{"token":"a","inventory":{"gpus":[${repeat('{},', count / 2)}{}]}}`,
  ];
  const long = [
    `"${'a'.repeat(chars - 2)}"`,
    `"${repeat('\\n', (chars - 2) / 2)}"`,
    `"${repeat('\\"', (chars - 2) / 2)}"`,
  ];
  const prompt = `{"model":"m","messages":[{"role":"user","content":"${repeat('\\u00e9', (chars - 64) / 6)}"}]}`;
  const filled = [chars / 8, JSON_VALUES_MAX - 10].flatMap(shapes).filter((text) => text.length <= chars);
  return [...long, prompt, ...filled, ...shapes(chars / 3).map((text) => text.slice(0, chars))];
}

function linkTexts(chars: number): string[] {
  const fill = (piece: string, room: number): string => piece.repeat(Math.max(1, Math.floor(room / piece.length)));
  const observed = (workloads: string): string =>
    `{"type":"observed","held":null,"workloads":[${workloads}],"unknown_workload_ids":[]}`;
  const count = LINK_MESSAGE_VALUES_MAX;
  const bounded = (piece: string, values: number): string =>
    fill(`${piece},`, Math.min(chars - 128, (count / values) * (piece.length + 1))) + piece;
  return [
    ...jsonTexts(chars),
    `["\\u0000",${fill('0,', chars - 16)}0]`,
    `["\\u0000",${bounded('0', 1)}]`,
    observed(bounded('{}', 2)),
    observed(bounded('{"workload_id":"a","phase":"x"}', 6)),
    `{"type":"observed","held":null,"workloads":[],"unknown_workload_ids":[${bounded('"\\u0000"', 1)}]}`,
    `{"type":"stream_refused","stream_id":"a","detail":"${fill('\\u0000', chars - 80)}"}`,
  ];
}

function manifestTexts(chars: number): string[] {
  const layers = (piece: string, values: number): string =>
    `{"config":{"mediaType":"a","digest":"b","size":1},"layers":[${`${piece},`.repeat(REGISTRY_JSON_VALUES_MAX / values - 20)}${piece}]}`;
  const digest = `sha256:${'0'.repeat(64)}`;
  return [
    ...jsonTexts(chars),
    layers('{}', 2),
    layers(`{"mediaType":"a","digest":"${digest}","size":1}`, 7).slice(0, chars),
    layers('{}', 2).replace('layers', 'manifests'),
  ];
}

/** Files that call JSON.parse on their own: who writes the text, or what bounds it. */
const OWN_JSON = new Map([
  ['shared/json.ts', 'counts the values of a stranger first'],
  ['agent/holder/page/connection.ts', 'the holder: this runs in the browser'],
  ['agent/guest/config.ts', 'the supervisor'],
  ['agent/guest/main.ts', 'the holder'],
  ['agent/holder/guest-connection.ts', 'a container: frames of at most 64 KiB, in the process of its own holder'],
  ['agent/wire/holder-messages.ts', 'a holder or the supervisor: frames are bounded'],
  ['agent/holder/terminal-target.ts', 'a browser of the tenant, in the process of its own holder'],
  ['agent/host/facts.ts', 'the host'],
  ['agent/host/state.ts', 'the agent itself'],
  ['agent/host/status-socket.ts', 'the agent itself'],
  ['agent/link/enroll.ts', 'the control plane'],
  ['control-plane/admin/command.ts', 'the daemon'],
  ['control-plane/base/db/columns.ts', 'our own rows'],
  ['control-plane/base/http/cursors.ts', 'ourselves: a cursor is signed'],
  ['control-plane/base/http/openapi.ts', 'ourselves'],
  ['control-plane/base/users/oidc.ts', 'ourselves: the text was sealed'],
  ['control-plane/cli/client.ts', 'the control plane, in the process of its caller'],
  ['control-plane/cli/config.ts', 'the user: the file is theirs'],
  ['control-plane/console/web/core/api.ts', 'the control plane, in the page of its reader'],
  ['control-plane/console/web/core/single-sign-on.ts', 'the page itself, in the tab of its reader'],
  ['control-plane/console/web/core/typed.ts', 'the page itself, in the tab of its reader'],
  ['shared/event-reader.ts', 'the control plane, in the process of its caller'],
  ['control-plane/cli/svc.ts', 'the user'],
  ['control-plane/fleet/metrics/figures.ts', 'our own rows: minutes write them, with at most 16 GPUs'],
  ['control-plane/fleet/workloads/workloads.ts', 'ourselves: the text was sealed'],
  ['control-plane/models/gateway/totals-route.ts', 'ourselves: a cursor is signed'],
  ['control-plane/money/metering/routes.ts', 'ourselves: a cursor is signed'],
  ['control-plane/money/payouts/earnings-route.ts', 'ourselves: a cursor is signed'],
  ['control-plane/rental/journal/kept-logs.ts', 'ourselves: the lines were bounded, and sealed'],
  ['control-plane/rental/journal/logs.ts', 'a host: lines are bounded'],
]);

test('only the files listed here parse JSON without a bound on its values', () => {
  const sources = readSources(process.cwd()).filter(({ path }) => /^(agent|control-plane|shared)\/.*\.ts$/.test(path));
  const parsing = sources.filter(({ text }) => text.includes('JSON.parse(')).map(({ path }) => path);
  expect(parsing.toSorted()).toEqual([...OWN_JSON.keys()].toSorted());
});
