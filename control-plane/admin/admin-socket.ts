// Sends a request to the running daemon over its unix socket.
import { request as httpRequest } from 'node:http';
import type { InjectedRequest } from '../base/http/server.ts';

export interface Answer {
  status: number;
  body: string;
}

/** The answer of the daemon; undefined if no daemon listens on the socket. Other failures, such as missing permission, throw. */
export function askDaemon(
  socketPath: string,
  { method, url, payload, headers: own }: InjectedRequest,
): Promise<Answer | undefined> {
  return new Promise((resolve, reject) => {
    const body = payload === undefined ? '' : JSON.stringify(payload);
    const headers = {
      ...own,
      ...(body === '' ? {} : { 'content-type': 'application/json', 'content-length': Buffer.byteLength(body) }),
    };
    const request = httpRequest({ socketPath, method, path: url, headers, agent: false }, (response) => {
      const chunks: Buffer[] = [];
      response.on('data', (chunk: Buffer) => chunks.push(chunk));
      response.on('end', () => resolve({ status: response.statusCode ?? 0, body: Buffer.concat(chunks).toString() }));
      response.on('error', reject);
    });
    request.on('error', (error) => {
      const nobody = 'code' in error && (error.code === 'ENOENT' || error.code === 'ECONNREFUSED');
      if (nobody) resolve(undefined);
      else reject(error);
    });
    request.end(body);
  });
}
