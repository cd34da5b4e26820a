// Our tunnel: control plane and agent as processes of their own.
import { HOLDER_FLAGS } from '../../../agent/holders/holder-client.ts';
import { SERVE_FLAGS } from '../../../control-plane/base/systemd/v8.ts';
import { freePort } from '../../kit/ports.ts';
import type { Chain } from './chain.ts';
import { type Order, startSide } from '../side.ts';

/** Files for TLS between host and control plane. */
export interface Certificate {
  cert: string;
  key: string;
}

/** A port in front whose connections our own code carries to `targetPort`. */
export async function openOwnTunnel(targetPort: number, tls?: Certificate): Promise<Chain> {
  const port = await freePort();
  const agent = await startSide(new URL('./agent.ts', import.meta.url), { flags: HOLDER_FLAGS });
  const onNews = ({ url = '' }: Order): void => {
    const dial = { kind: 'dial', url, port: targetPort, ...(tls === undefined ? {} : { ca: tls.cert }) };
    // The run waits for it and sees its failure.
    agent.ask(dial).catch((error: unknown) => console.error(`the agent could not dial: ${String(error)}`));
  };
  const controlPlane = await startSide(new URL('./control-plane.ts', import.meta.url), { onNews, flags: SERVE_FLAGS });
  await controlPlane.ask({ kind: 'open', port, ...tls });
  return {
    port,
    pids: [controlPlane.pid, agent.pid],
    close: () => Promise.all([controlPlane.stop(), agent.stop()]),
  };
}
