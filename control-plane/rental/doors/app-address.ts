// Host names of applications: `<instance>.<domain>` is the primary port, `p<port>-<instance>.<domain>` is another one.

export interface AppAddress {
  instanceId: string;
  /** Null: the primary one. */
  port: number | null;
}

/** What is asked for, or undefined where the host is none of ours. `host` is the Host header. */
export function readAppHost(host: string, domain: string): AppAddress | undefined {
  const name = host.toLowerCase().replace(/:\d+$/, '');
  if (!name.endsWith(`.${domain}`)) return undefined;
  const label = name.slice(0, -domain.length - 1);
  const match = /^(?:p([1-9]\d{0,4})-)?(i-[a-z2-7]{20})$/.exec(label);
  if (match === null) return undefined;
  const [, port, instanceId = ''] = match;
  return { instanceId, port: port === undefined ? null : Number(port) };
}

/** How customers write it. */
export interface AppSite {
  domain: string;
  /** What browsers connect to; 443 is not written. */
  publicPort: number;
}

/** The URL of an instance's primary port, or of another one. */
export function appUrl({ domain, publicPort }: AppSite, instanceId: string, port?: number): string {
  const label = port === undefined ? instanceId : `p${port}-${instanceId}`;
  return `https://${label}.${domain}${publicPort === 443 ? '' : `:${publicPort}`}`;
}
