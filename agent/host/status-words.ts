// `svc-agent status`: reads the status of the running agent over its socket and shows it in a few lines.
import { request } from 'node:http';
import { join } from 'node:path';
import { text } from 'node:stream/consumers';
import type { AgentStatus } from './status-socket.ts';

/** Rejects if no agent runs on this state directory, or if it still starts. */
export async function askStatus(stateDir: string): Promise<AgentStatus> {
  const socketPath = join(stateDir, 'agent.sock');
  const { code, body } = await new Promise<{ code: number; body: string }>((resolve, reject) => {
    const asked = request({ socketPath, path: '/loops', agent: false }, (response) => {
      text(response).then((body) => resolve({ code: response.statusCode ?? 0, body }), reject);
    });
    asked.on('error', (error) => reject(new Error(`no agent answers at ${socketPath}: start it`, { cause: error })));
    asked.end();
  });
  if (code !== 200) throw new Error(`the agent does not say how it is: ${body.trim()}`);
  return JSON.parse(body) as AgentStatus;
}

/** One line for each condition that must hold before the host is rented out. `isWell` is true if all hold. */
export function statusWords(status: AgentStatus): { lines: string[]; isWell: boolean } {
  const { link, loops, gpu_faults: faults, engine_version: engine, network_fence: fence, fence_error: hole } = status;
  const failing = loops.filter((loop) => loop.last_error !== null);
  const gpus = status.gpu_error === '' ? `${status.gpus}` : `not known: ${status.gpu_error}`;
  return {
    lines: [
      `agent: ${status.version}`,
      `link: ${link.connected ? 'up' : `down${link.last_end === null ? '' : `, ${link.last_end}`}`}`,
      `gpus: ${gpus}`,
      ...faults.map(({ uuid, severity, detail }) => `gpu ${uuid} is ${severity}: ${detail}`),
      `docker engine: ${engine === '' ? 'does not answer' : engine}`,
      `network fence: ${hole === '' ? fence : `${fence}, does not stand: ${hole}`}`,
      ...failing.map((loop) => `loop ${loop.name} fails: ${loop.last_error}`),
    ],
    isWell:
      link.connected && status.gpus > 0 && faults.length === 0 && engine !== '' && hole === '' && failing.length === 0,
  };
}
