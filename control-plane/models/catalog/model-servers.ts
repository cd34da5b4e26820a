// Which addresses may be called: those of the model servers in the catalog.
import type { OutboundPolicy } from '../../base/outbound/policy.ts';
import type { CatalogModel } from './models.ts';

/** The operator's own choice: they may be private and speak plain HTTP. Nobody else is called. */
export function policyOf(models: readonly CatalogModel[]): OutboundPolicy {
  const urls = models.flatMap(({ upstreams, economy }) => [...upstreams, ...(economy?.upstreams ?? [])]);
  const namedHosts = urls.map(({ base_url: url }) => {
    const { hostname, port, protocol } = new URL(url);
    const plainHttp = protocol === 'http:';
    return { host: `${hostname}:${port === '' ? (plainHttp ? 80 : 443) : port}`, plainHttp };
  });
  return { ports: 'any', privateNetworks: [], namedHosts };
}
