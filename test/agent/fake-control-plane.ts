// The control plane as an agent sees it: enrolment, the link, data streams, and one TCP port per workload that leads to its SSH server.
import { createPublicKey, randomBytes, verify } from 'node:crypto';
import { createServer as createHttpServer, type ServerResponse } from 'node:http';
import { createServer, type AddressInfo, type Server, type Socket } from 'node:net';
import { once } from 'node:events';
import type { Duplex } from 'node:stream';
import { WebSocketServer, type WebSocket } from 'ws';
import { LINK_MESSAGE_VALUES_MAX } from '../../shared/limits.ts';
import { EnrollRequest, type Inventory } from '../../shared/protocol/inventory.ts';
import {
  AgentMessage,
  decodeMessage,
  ENROLL_PATH,
  LINK_PATH,
  linkProof,
  STREAMS_PATH,
  type DesiredMessage,
  type HelloMessage,
  type ObservedMessage,
  type OpenMessage,
  type ServerMessage,
  PROTOCOL_MAX,
  PROTOCOL_MIN,
} from '../../shared/protocol/link.ts';
import type { MetricsSample } from '../../shared/protocol/metrics.ts';
import { acceptStream } from '../../shared/protocol/stream.ts';
import type { DesiredWorkload, ObservedWorkload } from '../../shared/protocol/workload.ts';
import { eventually } from '../kit/processes.ts';
import { createJobEnd, FILES_PATH, type JobEnd } from './fake-job-end.ts';

/** Who may log in: customers, or the probe at its own target. */
export type SshKeys = { authorized_keys: string[] } | { probe_key: string };

export interface FakeControlPlane {
  url: string;
  token: string;
  /** Raises the revision and sends the whole list. */
  desire(workloads: DesiredWorkload[]): void;
  send(message: ServerMessage): void;
  /** Sends a text frame as it is. */
  sendText(text: string): void;
  connected(): boolean;
  /** The inventory that the agent has sent last. */
  inventory(): Inventory | undefined;
  /** The last report of the link that is up. */
  observed(): ObservedMessage | undefined;
  /** Waits until the workload is observed so. */
  phase(workloadId: string, phase: ObservedWorkload['phase'], timeoutMs?: number): Promise<ObservedWorkload>;
  hellos: HelloMessage[];
  /** Close codes and reasons of links that ended. */
  ended: { code: number; reason: string }[];
  /** Workloads whose registry login the agent has asked for. */
  pullLoginsAsked: string[];
  /** Values that the host has confirmed as stored. */
  cloneTokensKept: string[];
  /** Streams that the agent refused. */
  refused: { streamId: string; detail: string }[];
  enrolments: EnrollRequest[];
  /** Listens on loopback; every connection is led through a new stream to the workload's SSH server. */
  sshPort(workloadId: string, keys: () => SshKeys): Promise<number>;
  /** Asks for a stream and gives it. */
  stream(workloadId: string, keys: SshKeys): Promise<Duplex>;
  /** The figures that the agent has sent. */
  samples: MetricsSample[];
  /** The newest version of the protocol that it speaks on links from now on. */
  speak(version: number): void;
  /** What the agent has sent and got for jobs. */
  jobs: JobEnd;
  dropLink(): void;
  stop(): Promise<void>;
}

export const MACHINE_ID = '0192aaaa-0000-7000-8000-000000000001';

/** Listens on a free loopback port. It accepts one enrolment token and the key that used it first. */
export async function startFakeControlPlane(): Promise<FakeControlPlane> {
  const enrolments: EnrollRequest[] = [];
  const sockets = new Set<Socket>();
  const holders: Server[] = [];
  const jobs = createJobEnd(() => origin);
  let origin = '';
  const link = createLinkEnd(() => enrolments.at(-1)?.public_key ?? '', jobs);
  const streams = createStreams(link);
  const http = createHttpServer((request, response) => {
    if (request.url?.startsWith(FILES_PATH) === true) return jobs.serve(request, response);
    let body = '';
    request.on('data', (chunk: Buffer) => (body += chunk.toString()));
    request.on('end', () => answerEnrolment(request.url ?? '', body, response, enrolments));
  });
  const websockets = new WebSocketServer({ noServer: true });
  http.on('upgrade', (request, socket: Socket, head) => {
    sockets.add(socket);
    socket.setNoDelay(true);
    if (request.url === LINK_PATH) return websockets.handleUpgrade(request, socket, head, link.serve);
    const take = streams.taker(request.url ?? '');
    const stream = take && acceptStream(request, socket, head);
    if (stream === undefined) socket.end('HTTP/1.1 404 Not Found\r\n\r\n');
    else take?.(stream);
  });
  http.listen(0, '127.0.0.1');
  await once(http, 'listening');
  const { port } = http.address() as AddressInfo;
  origin = `http://127.0.0.1:${port}`;

  return {
    ...link,
    url: origin,
    jobs,
    token: TOKEN,
    enrolments,
    sshPort: async (workloadId, keys) => {
      const server = createServer({ allowHalfOpen: true, noDelay: true }, (socket) => {
        sockets.add(socket);
        socket.on('error', () => socket.destroy());
        streams.open(workloadId, keys()).then(
          (duplex) => splice(socket, duplex),
          () => socket.destroy(),
        );
      }).listen(0, '127.0.0.1');
      await once(server, 'listening');
      holders.push(server);
      return (server.address() as AddressInfo).port;
    },
    stream: streams.open,
    stop: async () => {
      for (const server of holders) server.close();
      websockets.clients.forEach((client) => client.terminate());
      for (const socket of sockets) socket.destroy();
      http.closeAllConnections();
      await new Promise((resolve) => http.close(resolve));
    },
  };
}

const TOKEN = 'enrolment-token-for-tests';

function answerEnrolment(path: string, body: string, response: ServerResponse, enrolments: EnrollRequest[]): void {
  const reply = (status: number, value: unknown): void => {
    response.writeHead(status, { 'content-type': 'application/json' }).end(JSON.stringify(value));
  };
  if (path !== ENROLL_PATH) return reply(404, { code: 'not_found' });
  const asked = EnrollRequest.parse(JSON.parse(body));
  if (asked.token !== TOKEN) return reply(401, { code: 'enrollment_token_invalid', detail: 'no such token' });
  const first = enrolments[0];
  if (first !== undefined && first.public_key !== asked.public_key) {
    return reply(409, { code: 'enrollment_token_used', detail: 'another host used it' });
  }
  enrolments.push(asked);
  reply(200, { machine_id: MACHINE_ID, link_path: LINK_PATH });
}

type LinkEnd = Pick<
  FakeControlPlane,
  | 'desire'
  | 'send'
  | 'sendText'
  | 'connected'
  | 'inventory'
  | 'observed'
  | 'phase'
  | 'hellos'
  | 'ended'
  | 'refused'
  | 'pullLoginsAsked'
  | 'cloneTokensKept'
  | 'samples'
  | 'speak'
  | 'dropLink'
> & { serve(client: WebSocket): void };

function createLinkEnd(publicKey: () => string, jobs: JobEnd): LinkEnd {
  const hellos: HelloMessage[] = [];
  const ended: { code: number; reason: string }[] = [];
  const refused: { streamId: string; detail: string }[] = [];
  const [pullLoginsAsked, cloneTokensKept, samples]: [string[], string[], MetricsSample[]] = [[], [], []];
  let link: WebSocket | undefined;
  let inventory: Inventory | undefined;
  let observed: ObservedMessage | undefined;
  let desired: DesiredMessage | undefined;
  let revision = 0;
  let version = PROTOCOL_MAX;
  const send = (message: ServerMessage): void => link?.send(JSON.stringify(message));

  const greet = (client: WebSocket, nonce: string, message: HelloMessage): void => {
    if (!isProven(message, nonce, publicKey())) return client.close(4401, 'bad proof');
    hellos.push(message);
    ({ inventory } = message);
    link = client;
    send({ type: 'welcome', protocol: version, now_ms: Date.now() });
    if (desired !== undefined) send({ ...desired, now_ms: Date.now() });
  };
  return {
    hellos,
    ended,
    refused,
    pullLoginsAsked,
    cloneTokensKept,
    samples,
    speak: (newest) => void (version = newest),
    send,
    sendText: (text) => link?.send(text),
    connected: () => link !== undefined,
    desire: (workloads) => {
      revision += 1;
      desired = { type: 'desired', epoch: 1, revision, complete: true, now_ms: Date.now(), workloads };
      send(desired);
    },
    inventory: () => inventory,
    observed: () => observed,
    phase: (workloadId, phase, timeoutMs = 30_000) =>
      eventually(`${workloadId} ${phase}`, timeoutMs, () => {
        const workload = observed?.workloads.find((one) => one.workload_id === workloadId);
        if (workload?.phase === phase) return Promise.resolve(workload);
        throw new Error(`it is ${JSON.stringify(workload)}`);
      }),
    dropLink: () => link?.terminate(),
    serve: (client) => {
      const nonce = randomBytes(24).toString('base64url');
      client.send(JSON.stringify({ type: 'challenge', nonce, protocol: { min: PROTOCOL_MIN, max: version } }));
      client.on('message', (data: Buffer) => {
        const message = messageOf(data);
        if (jobs.take(message, send)) return;
        if (message.type === 'hello') greet(client, nonce, message);
        else if (message.type === 'observed') observed = message;
        else if (message.type === 'inventory') ({ inventory } = message);
        else if (message.type === 'metrics') samples.push(message);
        else if (message.type === 'clone_token_kept') cloneTokensKept.push(message.value);
        else if (message.type === 'pull_login') pullLoginsAsked.push(message.workload_id);
        else if (message.type === 'stream_refused')
          refused.push({ streamId: message.stream_id, detail: message.detail });
      });
      client.on('close', (code, reason) => {
        ended.push({ code, reason: reason.toString() });
        if (link !== client) return;
        link = undefined;
        observed = undefined;
      });
    },
  };
}

function isProven({ machine_id: machineId, proof }: HelloMessage, nonce: string, publicKey: string): boolean {
  const key = createPublicKey({ key: { kty: 'OKP', crv: 'Ed25519', x: publicKey }, format: 'jwk' });
  return verify(null, linkProof(machineId, nonce), key, Buffer.from(proof, 'base64url'));
}

function messageOf(data: Buffer): AgentMessage {
  const decoded = decodeMessage(AgentMessage, data.toString(), LINK_MESSAGE_VALUES_MAX);
  if (!decoded.ok) throw new Error(`the agent sent nonsense: ${decoded.reason}`);
  return decoded.message;
}

interface Streams {
  open: FakeControlPlane['stream'];
  /** What takes a stream at this path, once. */
  taker(path: string): ((stream: Duplex) => void) | undefined;
}

function createStreams(link: LinkEnd): Streams {
  const waiting = new Map<string, (stream: Duplex) => void>();
  return {
    taker: (path) => {
      return path.startsWith(STREAMS_PATH) ? waiting.get(path.slice(STREAMS_PATH.length)) : undefined;
    },
    open: async (workloadId, keys) => {
      if (!link.connected()) throw new Error('the agent has no link');
      const token = randomBytes(24).toString('base64url');
      const streamId = randomBytes(8).toString('hex');
      let stream: Duplex | undefined;
      waiting.set(token, (duplex) => {
        waiting.delete(token);
        stream = duplex;
      });
      const target: OpenMessage['target'] =
        'probe_key' in keys ? { kind: 'probe', ...keys } : { kind: 'ssh', ...keys, client_ip: '127.0.0.1' };
      link.send({ type: 'open', stream_id: streamId, token, workload_id: workloadId, target });
      const answer = await eventually('stream', 15_000, () =>
        Promise.resolve(stream ?? link.refused.find((one) => one.streamId === streamId)),
      );
      if ('detail' in answer) throw new Error(answer.detail);
      return answer;
    },
  };
}

function splice(socket: Socket, duplex: Duplex): void {
  duplex.on('error', () => socket.destroy());
  duplex.once('close', () => socket.destroySoon());
  socket.once('close', () => duplex.destroy());
  socket.pipe(duplex);
  duplex.pipe(socket);
}
