// The headers of every request to a model server, and the addresses next to its /v1.
import type { Upstream } from './models.ts';

export function headersFor({ apiKey }: Upstream): Record<string, string> {
  return {
    'content-type': 'application/json',
    'user-agent': 'svc-control-plane',
    ...(apiKey === undefined ? {} : { authorization: `Bearer ${apiKey}` }),
  };
}

/** `/health` of http://10.0.0.5:8000/v1 is http://10.0.0.5:8000/health. */
export function besideV1({ base_url: url }: Upstream, path: string): string {
  return `${url.replace(/\/v1$/, '')}${path}`;
}
