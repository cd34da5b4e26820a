// The interface of this room: opens the connections to model servers, and starts and ends requests.
import type { Reply } from '../../base/http/route.ts';
import { openExchanges } from '../../base/outbound/exchange.ts';
import type { Catalog } from '../catalog/catalog.ts';
import { policyOf } from '../catalog/model-servers.ts';
import type { Upstream } from '../catalog/models.ts';
import type { Replicas } from '../replicas/replicas.ts';
import { type ChatCall, completeChat } from './chat.ts';
import { streamChat } from './chat-stream.ts';
import { type Counts, openCounts } from './counts.ts';
import { embed, type EmbeddingsCall } from './embeddings.ts';
import { healthOf, openUpstreams, type Upstreams } from './upstreams.ts';
import { type ImagesCall, makeImages } from './images.ts';
import { openRequests, type RequestsDeps } from './requests.ts';
import type { CallDeps } from './whole-answer.ts';

export interface Gateway {
  completeChat(call: ChatCall): Promise<Reply>;
  embed(call: EmbeddingsCall): Promise<Reply>;
  makeImages(call: ImagesCall): Promise<Reply>;
  /** Closes open receipts of dead processes, free of charge. Returns how many there were. */
  sweep(signal: AbortSignal): Promise<number>;
  /** Makes the health checks of model servers that are due. */
  checkServers(signal: AbortSignal): Promise<void>;
  /** Counts for the operator's metrics. */
  readonly counts: Pick<Counts, 'endings' | 'failures' | 'beyondContexts'>;
  servers: Upstreams['states'];
  openRequests(): number;
  /** Waits up to `graceMs` for open requests, aborts the rest, and waits until all are settled. */
  drain(graceMs: number): Promise<void>;
  /** Aborts open requests, waits until they are settled, and ends the connections. */
  close(): Promise<void>;
}

interface GatewayDeps extends Omit<RequestsDeps, 'counts'> {
  catalog: Catalog;
  replicas: Replicas;
}

export function openGateway(deps: GatewayDeps): Gateway {
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
    checkServers: (signal) =>
      upstreams.check([...serversOf(deps.catalog), ...deps.replicas.all()], (upstream) =>
        healthOf(upstream, exchanges, signal),
      ),
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

/** The servers of all models that this room calls. Videos have a room of their own. */
function serversOf({ models }: Catalog): Upstream[] {
  const called = models.filter(({ modality, status }) => modality !== 'video' && status !== 'coming_soon');
  return called.flatMap(({ upstreams, economy }) => [...upstreams, ...(economy?.upstreams ?? [])]);
}
