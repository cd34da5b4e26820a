// The outbound policy for model servers: only the servers in the catalog may be called.
import type { OutboundPolicy } from '../../base/outbound/policy.ts';
import type { Catalog } from './catalog.ts';
import type { CatalogModel } from './models.ts';

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

function hostsOf(models: readonly CatalogModel[]): OutboundPolicy['namedHosts'] {
  const urls = models.flatMap(({ upstreams, economy }) => [...upstreams, ...(economy?.upstreams ?? [])]);
  return urls.map(({ base_url: url }) => {
    const { hostname, port, protocol } = new URL(url);
    const plainHttp = protocol === 'http:';
    return { host: `${hostname}:${port === '' ? (plainHttp ? 80 : 443) : port}`, plainHttp };
  });
}
