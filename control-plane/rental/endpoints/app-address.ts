// Host names of instances on the web. `<instance>.<domain>` is the primary port of the application, `p<port>-<instance>.<domain>` is another
// port, and `term-<instance>.<domain>` is the console.

export interface AppAddress {
  instanceId: string;
  /** A number is a port of the application. */
  at: 'primary' | 'terminal' | number;
}

/** The address that a Host header names; undefined if the host is not one of ours. */
export function readAppHost(host: string, domain: string): AppAddress | undefined {
  const name = host.toLowerCase().replace(/:\d+$/, '');
  if (!name.endsWith(`.${domain}`)) return undefined;
  const label = name.slice(0, -domain.length - 1);
  const match = /^(?:(term)-|p([1-9]\d{0,4})-)?(i-[a-z2-7]{20})$/.exec(label);
  if (match === null) return undefined;
  const [, terminal, port, instanceId = ''] = match;
  if (terminal !== undefined) return { instanceId, at: 'terminal' };
  return { instanceId, at: port === undefined ? 'primary' : Number(port) };
}

/** How customers write these addresses. */
export interface AppSite {
  domain: string;
  /** The port that browsers connect to. 443 is not written. */
  publicPort: number;
}

export function appUrl({ domain, publicPort }: AppSite, { instanceId, at }: AppAddress): string {
  const prefixes = { primary: '', terminal: 'term-' };
  const prefix = typeof at === 'number' ? `p${at}-` : prefixes[at];
  return `https://${prefix}${instanceId}.${domain}${publicPort === 443 ? '' : `:${publicPort}`}`;
}
