// Our tunnel: control plane and agent as processes of their own.
import { freePort } from '../../kit/processes.ts';
import type { Chain } from './chain.ts';
import { startSide } from '../side.ts';

/** Files that make the stretch between host and control plane TLS. */
export interface Certificate {
  cert: string;
  key: string;
}

/** A port in front whose connections our own code carries to `targetPort`. */
export async function openOwnTunnel(targetPort: number, tls?: Certificate): Promise<Chain> {
  const port = await freePort();
  const agent = await startSide(new URL('./agent.ts', import.meta.url));
  const controlPlane = await startSide(new URL('./control-plane.ts', import.meta.url), ({ url = '' }) => {
    const dial = { kind: 'dial', url, port: targetPort, ...(tls === undefined ? {} : { ca: tls.cert }) };
    // One that fails is seen by the door, which waits for it.
    agent.ask(dial).catch((error: unknown) => console.error(`the agent could not dial: ${String(error)}`));
  });
  await controlPlane.ask({ kind: 'open', port, ...tls });
  return {
    port,
    pids: [controlPlane.pid, agent.pid],
    close: () => Promise.all([controlPlane.stop(), agent.stop()]),
  };
}
