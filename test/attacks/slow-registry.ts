// A registry that sends everything at once except the layers: of each layer it sends a few bytes per second.
import { once } from 'node:events';
import { createServer, type ServerResponse } from 'node:http';
import type { Registry } from '../kit/registry.ts';

export interface SlowRegistry {
  /** Layers that are being given, or were left. */
  layers(): number;
  stop(): Promise<void>;
}

const TRICKLE_BYTES = 1024;
const TRICKLE_MS = 1_000;
/** What is smaller is no layer. */
const LAYER_BYTES_MIN = 64 * 1024;

/** The images of `behind`, at `port`. */
export async function openSlowRegistry(port: number, behind: Registry): Promise<SlowRegistry> {
  let layers = 0;
  const server = createServer((request, response) => {
    void (async () => {
      const { accept = '*/*' } = request.headers;
      const answer = await fetch(`http://${behind.host}${request.url ?? ''}`, {
        method: request.method ?? 'GET',
        headers: { accept },
      });
      const body = Buffer.from(await answer.arrayBuffer());
      const headers = [...answer.headers].filter(([name]) => !['connection', 'transfer-encoding'].includes(name));
      response.writeHead(answer.status, Object.fromEntries(headers));
      if (request.method === 'HEAD' || body.length < LAYER_BYTES_MIN) return void response.end(body);
      layers += 1;
      trickle(body, response);
    })().catch(() => response.destroy());
  });
  server.listen(port, '127.0.0.1');
  await once(server, 'listening');
  return {
    layers: () => layers,
    stop: async () => {
      server.closeAllConnections();
      await new Promise((resolve) => server.close(resolve));
    },
  };
}

function trickle(body: Buffer, response: ServerResponse): void {
  let at = 0;
  const timer = setInterval(() => {
    response.write(body.subarray(at, at + TRICKLE_BYTES));
    at += TRICKLE_BYTES;
    if (at >= body.length) response.end();
  }, TRICKLE_MS);
  response.once('close', () => clearInterval(timer));
}
