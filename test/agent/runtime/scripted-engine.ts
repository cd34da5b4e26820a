// A Docker Engine that answers from a script over a unix socket. It shows how the driver asks, and what the driver makes of each answer.
import { once } from 'node:events';
import { mkdtempSync, rmSync } from 'node:fs';
import { createServer, type IncomingMessage } from 'node:http';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { buffer } from 'node:stream/consumers';

/** One request to the engine. */
export interface AskedEngine {
  /** Method and path, for example `DELETE /containers/c-1`. */
  line: string;
  query: Record<string, string>;
  headers: IncomingMessage['headers'];
  /** JSON as its value, other bytes as text. */
  body: unknown;
}

export interface EngineAnswer {
  status?: number;
  /** A text is sent as it is, any other value as JSON. */
  body?: unknown;
  /** More may follow, so the answer has no end. */
  isOpen?: boolean;
}

export interface ScriptedEngine {
  socketPath: string;
  asked: AskedEngine[];
  /** The answer to each request line. A function is called at each request. Every other request succeeds. */
  answers: Map<string, EngineAnswer | (() => EngineAnswer)>;
  /** The lines of all requests, in order. */
  lines(): string[];
  close(): Promise<void>;
}

/** What an engine without containers answers. */
const PLAIN: Record<string, unknown> = {
  'GET /version': { Version: '27.0' },
  'GET /containers/json': [],
  'GET /networks': [],
  'POST /containers/create': { Id: 'c-new' },
  'POST /networks/create': { Id: 'n-new' },
};

export async function openScriptedEngine(): Promise<ScriptedEngine> {
  const folder = mkdtempSync(join(tmpdir(), 'engine-'));
  const socketPath = join(folder, 'docker.sock');
  const asked: AskedEngine[] = [];
  const answers: ScriptedEngine['answers'] = new Map();
  const server = createServer((request, response) => {
    void (async () => {
      const url = new URL(request.url ?? '/', 'http://engine');
      const line = `${request.method} ${decodeURIComponent(url.pathname)}`;
      const bytes = await buffer(request);
      const isJson = request.headers['content-type'] === 'application/json' && bytes.length > 0;
      const body: unknown = isJson ? JSON.parse(bytes.toString()) : bytes.toString();
      asked.push({ line, query: Object.fromEntries(url.searchParams), headers: request.headers, body });
      const scripted = answers.get(line);
      const answer = (typeof scripted === 'function' ? scripted() : scripted) ?? {};
      const content = answer.body ?? ((answer.status ?? 200) < 300 ? PLAIN[line] : { message: 'no' });
      response.writeHead(answer.status ?? statusOf(line));
      const text = typeof content === 'string' ? content : content === undefined ? '' : JSON.stringify(content);
      if (answer.isOpen === true) response.write(text);
      else response.end(text);
    })();
  });
  server.listen(socketPath);
  await once(server, 'listening');
  return {
    socketPath,
    asked,
    answers,
    lines: () => asked.map(({ line }) => line),
    close: async () => {
      server.closeAllConnections();
      await new Promise((resolve) => server.close(resolve));
      rmSync(folder, { recursive: true });
    },
  };
}

function statusOf(line: string): number {
  if (/^POST \/(containers|networks)\/create$/.test(line)) return 201;
  return /\/(start|stop)$|^DELETE \/(containers|networks)\//.test(line) ? 204 : 200;
}
