// How model servers are called: the outbound policy, by which only the servers in the catalog may be called, and what every request has.
import type { OutboundPolicy } from '../../base/outbound/policy.ts';
import type { Catalog } from './catalog.ts';
import type { CatalogModel, Upstream } from './models.ts';

/** The catalog is read at each request. The operator chooses these servers, so they may be private and use plain HTTP. */
export function policyOf(catalog: Pick<Catalog, 'models'>): OutboundPolicy {
  let models: readonly CatalogModel[] = [];
  let hosts: OutboundPolicy['namedHosts'] = [];
  return {
    ports: 'any',
    privateNetworks: [],
    get namedHosts() {
      if (catalog.models !== models) {
        ({ models } = catalog);
        hosts = hostsOf(models);
      }
      return hosts;
    },
  };
}

export function headersFor({ apiKey }: Upstream): Record<string, string> {
  return {
    'content-type': 'application/json',
    'user-agent': 'svc-control-plane',
    ...(apiKey === undefined ? {} : { authorization: `Bearer ${apiKey}` }),
  };
}

/** llama.cpp finishes a whole answer even if the caller has left, but stops a stream at once. */
export function isGathered({ engine }: Upstream): boolean {
  return engine === 'llama_cpp';
}

/** The fields that request a stream, and token counts during the stream. */
export function streamMembers({ engine }: Upstream): object {
  const counts = engine === 'vllm' || engine === 'sglang';
  return {
    stream: true,
    stream_options: { include_usage: true, ...(counts ? { continuous_usage_stats: true } : {}) },
    ...(engine === 'llama_cpp' ? { timings_per_token: true } : {}),
  };
}

/** `/health` of http://10.0.0.5:8000/v1 is http://10.0.0.5:8000/health. */
export function besideV1({ base_url: url }: Upstream, path: string): string {
  return `${url.replace(/\/v1$/, '')}${path}`;
}

function hostsOf(models: readonly CatalogModel[]): OutboundPolicy['namedHosts'] {
  const urls = models.flatMap(({ upstreams, economy }) => [...upstreams, ...(economy?.upstreams ?? [])]);
  return urls.map(({ base_url: url }) => {
    const { hostname, port, protocol } = new URL(url);
    const plainHttp = protocol === 'http:';
    const usualPort = plainHttp ? 80 : 443;
    return { host: `${hostname}:${port === '' ? usualPort : port}`, plainHttp };
  });
}
