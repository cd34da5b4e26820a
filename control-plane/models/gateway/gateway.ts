// The gateway: models are called here. Opens the connections to their servers, and gives back what dead processes left held.
import type { Reply } from '../../base/http/route.ts';
import { openExchanges } from '../../base/outbound/exchange.ts';
import type { Catalog } from '../catalog/catalog.ts';
import { policyOf } from '../catalog/model-servers.ts';
import { type ChatCall, completeChat } from './chat.ts';
import { streamChat } from './chat-stream.ts';
import { type Counts, openCounts } from './counts.ts';
import { embed, type EmbeddingsCall } from './embeddings.ts';
import { healthOf } from './health.ts';
import { type ImagesCall, makeImages } from './images.ts';
import { openRequests, type RequestsDeps } from './requests.ts';
import { openUpstreams, type Upstreams } from './upstreams.ts';
import type { CallDeps } from './whole-answer.ts';

export interface Gateway {
  completeChat(call: ChatCall): Promise<Reply>;
  embed(call: EmbeddingsCall): Promise<Reply>;
  makeImages(call: ImagesCall): Promise<Reply>;
  /** Gives back what requests hold that no process answers any more; returns how many those were. */
  sweep(signal: AbortSignal): Promise<number>;
  /** Looks at servers that were out for long enough, whether they are back. */
  lookAtServers(signal: AbortSignal): Promise<void>;
  /** For operators. */
  readonly counts: Pick<Counts, 'endings' | 'failures' | 'beyondContexts'>;
  servers: Upstreams['states'];
  openRequests(): number;
  /** Lets what is open end within `graceMs`, gives up the rest, and waits until that is settled. */
  drain(graceMs: number): Promise<void>;
  /** Gives up what is open, waits until that is settled, and ends the connections. */
  close(): Promise<void>;
}

export function openGateway(deps: Omit<RequestsDeps, 'counts'> & { catalog: Catalog }): Gateway {
  const exchanges = openExchanges(policyOf(deps.catalog), deps);
  const counts = openCounts();
  const requests = openRequests({ ...deps, counts });
  const upstreams = openUpstreams({ ...deps, counts });
  const calls: CallDeps = { ...deps, exchanges, requests, upstreams, counts };
  return {
    completeChat: (call) => (call.body.stream === true ? streamChat(call, calls) : completeChat(call, calls)),
    embed: (call) => embed(call, calls),
    makeImages: (call) => makeImages(call, calls),
    sweep: requests.sweep,
    lookAtServers: (signal) => upstreams.look((upstream) => healthOf(upstream, exchanges, signal)),
    counts,
    servers: upstreams.states,
    openRequests: requests.open,
    drain: requests.close,
    close: async () => {
      await requests.close(0);
      await exchanges.close();
    },
  };
}
