// The named peer of the same kind: the gateway of Portkey, which checks a chat and passes it on, but bills nothing.
//
// Its package listens on all interfaces and has no option for the host, so a preloaded line makes its servers listen on the loopback address.
import { writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { freePort } from '../../kit/ports.ts';
import { startHttpProgram } from '../../kit/processes.ts';

export interface Portkey {
  origin: string;
  pid: number;
  stop(): Promise<unknown>;
}

const PROGRAM = new URL('../../../node_modules/@portkey-ai/gateway/build/start-server.js', import.meta.url).pathname;
const ON_LOOPBACK = `const { Server } = require('node:net');
const { listen } = Server.prototype;
Server.prototype.listen = function (port, ...rest) {
  return listen.call(this, { port: Number(port), host: '127.0.0.1' }, ...rest.filter((each) => typeof each === 'function'));
};
`;

/** Starts it; `dir` exists. */
export async function startPortkey(dir: string): Promise<Portkey> {
  const port = await freePort();
  const preload = join(dir, 'on-loopback.cjs');
  writeFileSync(preload, ON_LOOPBACK);
  const origin = `http://127.0.0.1:${port}`;
  const program = await startHttpProgram(
    {
      command: process.execPath,
      args: ['--require', preload, PROGRAM, '--headless', `--port=${port}`],
      env: { TRUSTED_CUSTOM_HOSTS: '127.0.0.1' },
    },
    origin,
  );
  return { origin, pid: program.pid, stop: () => program.stop() };
}

/** The headers that name the model server to it. */
export function portkeyHeaders(upstreamPort: number): Record<string, string> {
  return { 'x-portkey-provider': 'openai', 'x-portkey-custom-host': `http://127.0.0.1:${upstreamPort}/v1` };
}
