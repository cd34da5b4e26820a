// The agents of a bench of links: each proves its machine, confirms its tokens, and reports that nothing runs. After a restart
// of the control plane all of them link again.
import { createPrivateKey, sign } from 'node:crypto';
import { setTimeout as sleep } from 'node:timers/promises';
import { performance } from 'node:perf_hooks';
import { type ClientOptions, WebSocket } from 'ws';
import {
  type AgentMessage,
  linkProof,
  ServerMessage,
  PROTOCOL_MAX,
  PROTOCOL_MIN,
} from '../../../shared/protocol/link.ts';
import { inventoryOf } from '../../kit/machines.ts';
import { type Answer, type Order, serveOrders } from '../side.ts';

/** Hosts that dial at the same time. */
const DIALLING_MAX = 128;
const REDIAL_MS = 100;
const GPUS_EACH = 8;

interface Host {
  id: string;
  token: string | null;
  isUp: boolean;
}

interface Way {
  url: string;
  options: ClientOptions;
  /** Signs a text with the key that all machines share. */
  sign(text: Buffer): Buffer;
}

const hosts: Host[] = [];

serveOrders(async (order) => {
  if (order.kind === 'idle') return dialIdle(order);
  return order.kind === 'link' ? link(order) : linkAgain(order);
});

/** Opens bare connections to the peer. */
async function dialIdle({ url, ca, count }: Order): Promise<Answer> {
  await inParallel(
    Array.from({ length: Number(count) }, () => async () => {
      const socket = new WebSocket(String(url), optionsOf(ca));
      await new Promise((resolve, reject) => socket.once('open', resolve).once('error', reject));
    }),
  );
  return { count: Number(count) };
}

/** Links the machines `m<first>` to `m<first + count - 1>`, which share a key. */
async function link(order: Order): Promise<Answer> {
  const [first, count] = [Number(order['first']), Number(order['count'])];
  const added = Array.from({ length: count }, (_, i): Host => ({ id: `m${first + i}`, token: null, isUp: false }));
  hosts.push(...added);
  return linkAll(added, order);
}

/** Waits for the end of all links and for the return of the control plane, then links all again. */
async function linkAgain(order: Order): Promise<Answer> {
  const [first, ...others] = hosts;
  while (hosts.some(({ isUp }) => isUp)) await sleep(REDIAL_MS);
  while (first?.isUp === false) {
    await linkAll([first], order).catch(() => sleep(REDIAL_MS));
  }
  return linkAll(others, order);
}

async function linkAll(all: readonly Host[], { url, ca, key }: Order): Promise<Answer> {
  const privateKey = createPrivateKey({ key: String(key), format: 'pem' });
  const way: Way = { url: String(url), options: optionsOf(ca), sign: (text) => sign(null, text, privateKey) };
  const startMs = performance.now();
  await inParallel(all.map((host) => () => linkOne(host, way)));
  return { ms: performance.now() - startMs };
}

/** Resolves when the first desired state has arrived. */
function linkOne(host: Host, way: Way): Promise<void> {
  return new Promise((resolve, reject) => {
    const socket = new WebSocket(way.url, { ...way.options, headers: { 'x-forwarded-for': addressOf(host) } });
    const send = (message: AgentMessage): void => socket.send(JSON.stringify(message));
    socket.on('message', (data: Buffer) => {
      const message = ServerMessage.parse(JSON.parse(data.toString()));
      if (message.type === 'challenge') send(helloOf(host, way.sign(linkProof(host.id, message.nonce))));
      if (message.type === 'clone_token') {
        host.token = message.value;
        send({ type: 'clone_token_kept', value: message.value });
      }
      if (message.type !== 'desired') return;
      const { epoch, revision } = message;
      send({ type: 'observed', held: { epoch, revision }, workloads: [], unknown_workload_ids: [] });
      host.isUp = true;
      resolve();
    });
    socket.on('error', reject);
    socket.on('close', () => {
      host.isUp = false;
      reject(new Error(`the link of ${host.id} ended`));
    });
  });
}

function addressOf({ id }: Host): string {
  const number = Number(id.slice(1));
  return `10.0.${number >> 8}.${number & 255}`;
}

function helloOf(host: Host, proof: Buffer): AgentMessage {
  let gpu = 0;
  return {
    type: 'hello',
    machine_id: host.id,
    proof: proof.toString('base64url'),
    protocol: { min: PROTOCOL_MIN, max: PROTOCOL_MAX },
    held: null,
    boot_id: 'boot',
    inventory: inventoryOf(GPUS_EACH, () => `${host.id}-${(gpu += 1)}`),
    clone_token: host.token,
  };
}

/** A server is trusted if its certificate is of `ca`. */
function optionsOf(ca: string | number | undefined): ClientOptions {
  return { perMessageDeflate: false, ...(ca === undefined ? {} : { ca: String(ca) }) };
}

async function inParallel(works: (() => Promise<unknown>)[]): Promise<void> {
  const left = works.values();
  const one = async (): Promise<void> => {
    for (const work of left) await work();
  };
  await Promise.all(Array.from({ length: DIALLING_MAX }, one));
}
