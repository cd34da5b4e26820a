// Serves JSON-RPC on a port of its own. What it answers is up to the caller.
import { once } from 'node:events';
import { createServer, type IncomingMessage, type ServerResponse } from 'node:http';
import type { AddressInfo } from 'node:net';
import { buffer } from 'node:stream/consumers';
import { z } from 'zod';

export interface RpcServer {
  url: string;
  close(): void;
}

const Asked = z.object({ method: z.string(), params: z.array(z.unknown()) });

/** The connection ends without an answer while `isDown`. What `answer` throws is an error of JSON-RPC. */
export async function serveJsonRpc(
  isDown: () => boolean,
  answer: (method: string, params: unknown[]) => Promise<unknown>,
): Promise<RpcServer> {
  const respond = async (request: IncomingMessage, response: ServerResponse): Promise<void> => {
    const { method, params } = Asked.parse(JSON.parse((await buffer(request)).toString()));
    if (isDown()) return void response.destroy();
    const result = await answer(method, params).then(
      (value) => ({ result: value ?? null }),
      (error: unknown) => ({ error: { code: -32_000, message: String(error) } }),
    );
    response.writeHead(200, { 'content-type': 'application/json' });
    response.end(JSON.stringify({ jsonrpc: '2.0', id: 1, ...result }));
  };
  const server = createServer((request, response) => void respond(request, response));
  server.listen(0, '127.0.0.1');
  await once(server, 'listening');
  return {
    url: `http://127.0.0.1:${(server.address() as AddressInfo).port}`,
    close: () => {
      server.closeAllConnections();
      server.close();
    },
  };
}
