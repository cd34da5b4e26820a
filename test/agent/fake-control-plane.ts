// The control plane as an agent sees it: enrolment, the link, data streams, and one TCP port per workload that leads to its SSH door.
import { createPublicKey, randomBytes, verify } from 'node:crypto';
import { createServer as createHttpServer } from 'node:http';
import { createServer, type AddressInfo, type Server, type Socket } from 'node:net';
import { once } from 'node:events';
import type { Duplex } from 'node:stream';
import { WebSocketServer, type WebSocket } from 'ws';
import { EnrollRequest } from '../../shared/protocol/inventory.ts';
import {
  AgentMessage,
  decodeMessage,
  ENROLL_PATH,
  LINK_PATH,
  linkProof,
  STREAMS_PATH,
  type HelloMessage,
  type ObservedMessage,
  type ServerMessage,
} from '../../shared/protocol/link.ts';
import { STREAM_SOCKET_OPTIONS, streamDuplex } from '../../shared/protocol/stream.ts';
import type { DesiredWorkload, ObservedWorkload } from '../../shared/protocol/workload.ts';
import { eventually } from '../kit/processes.ts';

export interface SshKeys {
  authorized_keys: string[];
  probe_key: string;
}

export interface FakeControlPlane {
  url: string;
  token: string;
  /** Raises the revision and sends the whole list. */
  desire(workloads: DesiredWorkload[]): void;
  send(message: ServerMessage): void;
  /** Sends a text frame as it is. */
  sendText(text: string): void;
  observed(): ObservedMessage | undefined;
  /** Waits until the workload is observed so. */
  phase(workloadId: string, phase: ObservedWorkload['phase'], timeoutMs?: number): Promise<ObservedWorkload>;
  hellos: HelloMessage[];
  /** Close codes and reasons of links that ended. */
  ended: { code: number; reason: string }[];
  refused: string[];
  enrolments: EnrollRequest[];
  /** Listens on loopback; every connection is led through a new stream to the workload's SSH door. */
  sshPort(workloadId: string, keys: () => SshKeys): Promise<number>;
  /** Asks for a stream and gives it. */
  stream(workloadId: string, keys: SshKeys): Promise<Duplex>;
  dropLink(): void;
  stop(): Promise<void>;
}

export const MACHINE_ID = '0192aaaa-0000-7000-8000-000000000001';

/** Listens on a free loopback port. It accepts one enrolment token and the key that used it first. */
export async function startFakeControlPlane(): Promise<FakeControlPlane> {
  const token = 'enrolment-token-for-tests';
  const enrolments: EnrollRequest[] = [];
  const hellos: HelloMessage[] = [];
  const ended: { code: number; reason: string }[] = [];
  const refused: string[] = [];
  const waiting = new Map<string, (stream: Duplex) => void>();
  const servers: Server[] = [];
  const sockets = new Set<Socket>();
  let link: WebSocket | undefined;
  let observed: ObservedMessage | undefined;
  let desired: ServerMessage | undefined;
  let revision = 0;

  const http = createHttpServer((request, response) => {
    let body = '';
    request.on('data', (chunk: Buffer) => (body += chunk.toString()));
    request.on('end', () => {
      const reply = (status: number, value: unknown): void => {
        response.writeHead(status, { 'content-type': 'application/json' }).end(JSON.stringify(value));
      };
      if (request.url !== ENROLL_PATH) return reply(404, { code: 'not_found' });
      const asked = EnrollRequest.parse(JSON.parse(body));
      if (asked.token !== token) return reply(401, { code: 'enrollment_token_invalid', detail: 'no such token' });
      const first = enrolments[0];
      if (first !== undefined && first.public_key !== asked.public_key) {
        return reply(409, { code: 'enrollment_token_used', detail: 'another host used it' });
      }
      enrolments.push(asked);
      reply(200, { machine_id: MACHINE_ID, link_path: LINK_PATH });
    });
  });
  const websockets = new WebSocketServer({ noServer: true, ...STREAM_SOCKET_OPTIONS });
  http.on('upgrade', (request, socket: Socket, head) => {
    sockets.add(socket);
    const path = request.url ?? '';
    const streamTaker = path.startsWith(STREAMS_PATH) ? waiting.get(path.slice(STREAMS_PATH.length)) : undefined;
    if (path !== LINK_PATH && streamTaker === undefined) {
      socket.end('HTTP/1.1 404 Not Found\r\n\r\n');
      return;
    }
    socket.setNoDelay(true);
    websockets.handleUpgrade(request, socket, head, (client) => {
      if (streamTaker !== undefined) streamTaker(streamDuplex(client));
      else serveLink(client);
    });
  });
  http.listen(0, '127.0.0.1');
  await once(http, 'listening');
  const { port } = http.address() as AddressInfo;

  const send = (message: ServerMessage): void => link?.send(JSON.stringify(message));
  const serveLink = (client: WebSocket): void => {
    const nonce = randomBytes(24).toString('base64url');
    client.send(JSON.stringify({ type: 'challenge', nonce, protocol: { min: 1, max: 1 } }));
    client.on('message', (data: Buffer) => {
      const decoded = decodeMessage(AgentMessage, data.toString());
      if (!decoded.ok) throw new Error(`the agent sent nonsense: ${decoded.reason}`);
      const message = decoded.message;
      if (message.type === 'hello') {
        const x = enrolments.at(-1)?.public_key ?? '';
        const key = createPublicKey({ key: { kty: 'OKP', crv: 'Ed25519', x }, format: 'jwk' });
        const proof = Buffer.from(message.proof, 'base64url');
        if (!verify(null, linkProof(message.machine_id, nonce), key, proof)) return client.close(4401, 'bad proof');
        hellos.push(message);
        link = client;
        send({ type: 'welcome', protocol: 1, now_ms: Date.now() });
        if (desired !== undefined) send(desired);
      } else if (message.type === 'observed') observed = message;
      else if (message.type === 'stream_refused') refused.push(message.detail);
    });
    client.on('close', (code, reason) => ended.push({ code, reason: reason.toString() }));
  };

  const stream = (workloadId: string, keys: SshKeys): Promise<Duplex> => {
    const streamToken = randomBytes(24).toString('base64url');
    return new Promise((resolve, reject) => {
      const timer = setTimeout(() => {
        waiting.delete(streamToken);
        reject(new Error(`no stream came; refused: ${refused.at(-1) ?? 'nothing'}`));
      }, 15_000);
      waiting.set(streamToken, (duplex) => {
        clearTimeout(timer);
        waiting.delete(streamToken);
        resolve(duplex);
      });
      const target = { kind: 'ssh' as const, ...keys, client_ip: '127.0.0.1' };
      const streamId = randomBytes(8).toString('hex');
      send({ type: 'open', stream_id: streamId, token: streamToken, workload_id: workloadId, target });
    });
  };

  return {
    url: `http://127.0.0.1:${port}`,
    token,
    hellos,
    ended,
    refused,
    enrolments,
    send,
    sendText: (text) => link?.send(text),
    desire: (workloads) => {
      revision += 1;
      desired = { type: 'desired', epoch: 1, revision, complete: true, workloads };
      send(desired);
    },
    observed: () => observed,
    phase: (workloadId, phase, timeoutMs = 30_000) =>
      eventually(`${workloadId} ${phase}`, timeoutMs, () => {
        const workload = observed?.workloads.find((one) => one.workload_id === workloadId);
        if (workload?.phase === phase) return Promise.resolve(workload);
        throw new Error(`it is ${JSON.stringify(workload)}`);
      }),
    sshPort: async (workloadId, keys) => {
      const server = createServer({ allowHalfOpen: true, noDelay: true }, (socket) => {
        sockets.add(socket);
        socket.on('error', () => socket.destroy());
        stream(workloadId, keys()).then(
          (duplex) => splice(socket, duplex),
          () => socket.destroy(),
        );
      }).listen(0, '127.0.0.1');
      await once(server, 'listening');
      servers.push(server);
      return (server.address() as AddressInfo).port;
    },
    stream,
    dropLink: () => link?.terminate(),
    stop: async () => {
      for (const server of servers) server.close();
      websockets.clients.forEach((client) => client.terminate());
      for (const socket of sockets) socket.destroy();
      http.closeAllConnections();
      await new Promise((resolve) => http.close(resolve));
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
