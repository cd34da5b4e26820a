// Rules of the configuration that concern several settings.

/** The settings that the rules compare. */
interface Compared {
  base_url: string;
  tls?: object | undefined;
  listen: Address;
  apps?: { listen: Address } | undefined;
  metrics_listen?: Address | undefined;
  ssh: { host: string; port_range: { first: number; last: number } };
  database: object;
  peer_url?: string | undefined;
  blobs_dir?: string | undefined;
  blobs_s3?: object | undefined;
  open_inference_requests_per_key: number;
  open_inference_requests_per_org: number;
  rate_limits: {
    inference_per_key_per_second: number;
    inference_burst: number;
    inference_per_org_per_second: number;
    inference_burst_per_org: number;
  };
}

interface Address {
  host: string;
  port: number;
}

export interface Contradiction {
  /** The setting that is wrong beside the others. */
  path: string[];
  message: string;
}

export function contradictionsIn(config: Compared): Contradiction[] {
  return [...inAddresses(config), ...inDatabase(config), ...inFiles(config), ...inLimits(config)];
}

function inAddresses({ tls, base_url: baseUrl, ...config }: Compared): Contradiction[] {
  // If the API uses TLS, customers and agents must get an address with https.
  const scheme =
    tls === undefined || baseUrl.startsWith('https:')
      ? []
      : [{ path: ['base_url'], message: 'must begin with https: if tls is set' }];
  const listeners = [
    { setting: 'listen', own: config.listen },
    { setting: 'apps.listen', own: config.apps?.listen },
    { setting: 'metrics_listen', own: config.metrics_listen },
  ].flatMap(({ setting, own }) => (own === undefined ? [] : [{ setting, ...own }]));
  return [...scheme, ...ofTwoListeners(listeners), ...inPortRange(listeners, config.ssh)];
}

interface Listener extends Address {
  setting: string;
}

/** The system would tell of another process, although it is this one. */
function ofTwoListeners(listeners: readonly Listener[]): Contradiction[] {
  return listeners.flatMap(({ setting, host, port }, i) => {
    const first = listeners.slice(0, i).find((each) => port !== 0 && each.port === port && meet(each.host, host));
    if (first === undefined) return [];
    return [{ path: setting.split('.'), message: `must not have port ${port}, which ${first.setting} has` }];
  });
}

/** A control plane that has a port keeps it from the instance that gets it, and a port of an instance keeps a control plane from starting. */
function inPortRange(listeners: readonly Listener[], { host, port_range: range }: Compared['ssh']): Contradiction[] {
  return listeners
    .filter((own) => own.port >= range.first && own.port <= range.last && meet(own.host, host))
    .map(({ setting, port }) => ({
      path: ['ssh', 'port_range'],
      message: `must not contain ${port}, the port of ${setting}: instances get the ports of the range`,
    }));
}

const EVERYWHERE: readonly string[] = ['0.0.0.0', '::'];

/** Whether two listeners with one port and these hosts exclude each other. */
function meet(one: string, other: string): boolean {
  return one === other || EVERYWHERE.includes(one) || EVERYWHERE.includes(other);
}

function inDatabase({ database, peer_url: url }: Compared): Contradiction[] {
  if (url === undefined || 'postgres' in database) return [];
  return [{ path: ['peer_url'], message: 'must not be set with SQLite: only one control plane uses its database' }];
}

function inFiles({ blobs_dir: directory, blobs_s3: s3 }: Compared): Contradiction[] {
  if (directory === undefined || s3 === undefined) return [];
  return [{ path: ['blobs_s3'], message: 'must not be set beside blobs_dir: files are in one of them' }];
}

/** If the limit of an organisation were below the one of a key, no key could reach its own, and its refusals would name the other. */
function inLimits(config: Compared): Contradiction[] {
  const { rate_limits: rates } = config;
  const limits = [
    {
      path: ['open_inference_requests_per_org'],
      isBelow: config.open_inference_requests_per_org < config.open_inference_requests_per_key,
      ofKey: 'open_inference_requests_per_key',
    },
    {
      path: ['rate_limits', 'inference_per_org_per_second'],
      isBelow: rates.inference_per_org_per_second < rates.inference_per_key_per_second,
      ofKey: 'inference_per_key_per_second',
    },
    {
      path: ['rate_limits', 'inference_burst_per_org'],
      isBelow: rates.inference_burst_per_org < rates.inference_burst,
      ofKey: 'inference_burst',
    },
  ];
  return limits.flatMap(({ path, isBelow, ofKey }) =>
    isBelow ? [{ path, message: `must not be below ${ofKey}` }] : [],
  );
}
