// The configuration of the control plane: one YAML file. Unknown keys are refused with their line. Only this file reads the environment.
import { existsSync, readFileSync } from 'node:fs';
import { userInfo } from 'node:os';
import { dirname, join } from 'node:path';
import { z } from 'zod';
import { ucentsFromDollars } from '../shared/money.ts';
import { parseYamlConfig, readNamed } from '../shared/yaml-config.ts';
import type { S3Settings } from './base/blobs/s3-requests.ts';
import { type MailSettings, mailSettings, Smtp } from './base/mail/mail.ts';
import { type OidcSettings, OidcProvider, oidcSettings } from './base/users/oidc.ts';
import type { ServiceManager } from './base/systemd/systemd.ts';
import { DepositsConfig } from './money/deposits/settings.ts';
import { ATTEMPTS_MAX } from './rental/webhooks/schedule.ts';
import { contradictionsIn } from './config-rules.ts';

/** The path of a unix socket has at most 107 characters. */
const SOCKET_PATH_CHARS_MAX = 107;

/** One process cannot answer this many requests per second. So this value means "no limit". */
const RATE_MAX = 1_000_000;
/** One TiB, in MiB. */
const FILE_MIB_MAX = 1_048_576;

/** A century. */
const DAYS_MAX = 36_500;

const Port = z.int().min(1).max(65_535);
const AbsolutePath = z.string().startsWith('/', 'must be an absolute path');
/** Whole dollars, up to a billion. */
const Dollars = z.int().min(0).max(1_000_000_000);
const Origin = z
  .url({ protocol: /^https?$/, error: 'must be a URL like https://example.com:8443' })
  .regex(/^https?:\/\/[^/?#@]+$/, 'must be a URL without a path, like https://example.com:8443');
const DomainName = z
  .string()
  .max(253)
  .regex(/^[a-z0-9]([a-z0-9-]*[a-z0-9])?(\.[a-z0-9]([a-z0-9-]*[a-z0-9])?)*$/, 'must be a lower-case domain name');
const NETWORK = 'must be a network like 10.0.0.0/8';
const PROXY = 'must be an address or a network like 10.0.0.0/8';
const PerSecond = z.number().positive().max(RATE_MAX);
/** Port 0 lets the system choose a port, for tests and demonstrations. */
const Listen = z.strictObject({ host: z.string().min(1), port: z.int().min(0).max(65_535) });

/** PEM files: the certificate with its chain, and its key. New files are served without a restart. */
const Tls = z.strictObject({ certificate_file: AbsolutePath, key_file: AbsolutePath });

const Database = z
  .strictObject({
    /** The database file. The file and its directory must belong to this process alone. */
    sqlite: AbsolutePath.optional(),
    postgres: z.url({ protocol: /^postgres(ql)?$/, error: 'must be a URL like postgres://user@host/name' }).optional(),
  })
  .transform((database, context): { sqlite: string } | { postgres: string } => {
    const { sqlite, postgres } = database;
    if (sqlite !== undefined && postgres === undefined) return { sqlite };
    if (postgres !== undefined && sqlite === undefined) return { postgres };
    context.addIssue({ code: 'custom', message: 'must have either sqlite or postgres' });
    return z.NEVER;
  });

const PortRange = z
  .strictObject({ first: Port, last: Port })
  .refine(({ first, last }) => first <= last, 'first must not be above last');

const ConfigFields = z.strictObject({
  listen: Listen.default({ host: '127.0.0.1', port: 8080 }),
  /** The certificate of `listen`. Plain HTTP if left out, for a proxy in front that terminates TLS. */
  tls: Tls.optional(),
  /** The public address of the API for customers and agents. */
  base_url: z
    .url({ protocol: /^https?$/, error: 'must be a URL like https://api.example.com/v1' })
    .regex(/\/v1$/, 'must end with /v1')
    .default('http://127.0.0.1:8080/v1'),
  /**
   * Who may make an account. `open`: everybody. `invite`: people with an invitation of a member. `closed`: nobody; only the operator adds people.
   * Members may always invite people who already have an account.
   */
  sign_up: z.enum(['open', 'invite', 'closed']).default('invite'),
  /** Mail server for mails with invitations. If it is left out, members send the links of invitations themselves. */
  smtp: Smtp.optional(),
  /** People may also sign in through this provider, which must know their e-mail addresses. */
  oidc: OidcProvider.optional(),
  /** The address at which other control planes on the PostgreSQL database reach this API. With it, this one serves beside the primary. */
  peer_url: Origin.optional(),
  database: Database.default({ sqlite: '/var/lib/svc-control-plane/control-plane.db' }),
  /** The socket of the operator commands; its file mode is 0600. */
  admin_socket: AbsolutePath.max(SOCKET_PATH_CHARS_MAX).default('/run/svc-control-plane/admin.sock'),
  /** 32 random bytes in hex. They sign cursors and encrypt what must not be readable in the database. Created at the first start on a database. */
  secret_file: AbsolutePath.default('/var/lib/svc-control-plane/secret'),
  /** Uploads of customers and output of models. Default: `blobs` beside `secret_file`. Created if it is missing. */
  blobs_dir: AbsolutePath.optional(),
  /** A store that speaks S3, in place of `blobs_dir`. Customers and hosts must reach it, because it serves presigned URLs itself. */
  blobs_s3: z
    .strictObject({
      endpoint: Origin,
      region: z.string().min(1).max(64).default('us-east-1'),
      bucket: z.string().regex(/^[a-z0-9][a-z0-9.-]{1,61}[a-z0-9]$/, 'must be the name of a bucket'),
      /** The bucket is in the path. Without it, it is in the host name. */
      path_style: z.boolean().default(true),
      /** Files that hold the id of the key and its secret. */
      access_key_file: AbsolutePath,
      secret_key_file: AbsolutePath,
    })
    .optional(),
  log_level: z.enum(['trace', 'debug', 'info', 'warn', 'error', 'silent']).default('info'),
  ssh: z
    .strictObject({
      /** The address on which the SSH ports listen. */
      host: z.string().min(1).default('0.0.0.0'),
      /** A wildcard DNS name of this host, so that instances have the names <id>.<domain>. Default: the host of `base_url`. */
      domain: DomainName.optional(),
      /** Each running instance uses one port. */
      port_range: PortRange.default({ first: 20_000, last: 29_999 }),
    })
    .prefault({}),
  /** Applications inside instances, each with its own host name. If left out, they can be reached only through SSH forwarding. */
  apps: z
    .strictObject({
      /**
       * Its wildcard DNS name points here: <id>.<domain>. Use a separate domain on the Public Suffix List, because its hosts belong to
       * different customers.
       */
      domain: DomainName,
      listen: Listen,
      /** The port to which browsers connect. */
      public_port: Port.default(443),
      /** A wildcard certificate. Plain HTTP if left out, for a proxy in front that terminates TLS. */
      tls: Tls.optional(),
    })
    .optional(),
  /** The platform's share of what a customer pays, in hundredths of a percent. */
  platform_fee_bps: z.int().min(0).max(10_000).default(1_500),
  /** Earnings of a supplier can be paid out this long after they were posted. Until then their customer may dispute them. */
  earnings_delay_hours: z.int().min(0).max(8_760).default(48),
  /** Payouts to suppliers. The operator sends them: no key of a wallet is on the server. */
  payouts: z
    .strictObject({
      /** A payout becomes due at most once in a UTC day, or in a week that begins on Monday. */
      every: z.enum(['day', 'week']).default('week'),
      /** Least amount of a payout in whole dollars. A smaller amount waits until more is earned. */
      minimum: Dollars.default(25),
      /** How long a supplier that has changed its payout destination gets no payout. Until then it can cancel the change. */
      destination_delay_hours: z.int().min(0).max(8_760).default(48),
    })
    .prefault({}),
  /** The GPUs of a reservation contract leave the market this long before it begins. */
  reservation_lead_hours: z.int().min(0).max(8_760).default(24),
  /**
   * The disk space under `blobs_dir` that uploads and videos must leave free, so that a database there can go on. The larger value counts.
   */
  disk_reserve: z
    .strictObject({
      percent: z.number().min(0).max(90).default(10),
      gib: z.number().min(0).max(1_000_000).default(5),
    })
    .prefault({}),
  /** Dollars that may be given away in any 24 hours. The rest waits for `admin credit release` or `refuse`, and raises an alarm. */
  loss_bounds: z
    .strictObject({
      /** Uncharged time of one organisation: outages, broken GPUs, and our own outages. */
      credits_per_org: Dollars.default(100),
      /** Uncharged time on the hosts of one supplier, which loses the money. */
      credits_per_supplier: Dollars.default(500),
      /** Payments to one supplier for outages of the control plane itself. */
      own_outages_per_supplier: Dollars.default(500),
    })
    .prefault({}),
  /** Stablecoin deposits. If left out, customers add funds through the operator. */
  deposits: DepositsConfig.optional(),
  /** Dollars an hour for each GB of an instance's disk beyond the included 100 GB, on hosts that enforce disk_gb. */
  disk_price_per_gb_hour: z
    .number()
    .min(0)
    .max(1)
    .refine((dollars) => ucentsFromDollars(dollars) !== undefined, 'must have at most 8 decimals')
    .default(0.0002),
  /** Launches of one organisation that may be in progress at once. Above this, callers get 429. */
  open_launches_per_org: z.int().min(1).max(RATE_MAX).default(50),
  /**
   * GPU hours that launches of one organisation may hold without paying, in any 24 hours. Above this, callers get 429. A quarter of the
   * GPU time that the organisation paid for in those 24 hours is added.
   */
  unpaid_gpu_hours_per_org: z.int().min(1).max(RATE_MAX).default(16),
  /**
   * When the service stops, requests to models, SSH sessions and other connections to instances may last this long. New connections are refused.
   * 0 closes them at once.
   */
  drain_seconds: z.int().min(0).max(3_600).default(10),
  /** A launch needs a balance for this many minutes. */
  launch_hold_minutes: z.int().min(1).max(1_440).default(10),
  images: z
    .strictObject({
      /**
       * Image registries that may have private addresses or speak plain HTTP. Their token servers must be named too. All other registries
       * must be on the internet: customers name them and must not reach internal networks.
       */
      private_registries: z
        .array(
          z.strictObject({
            /** The host as the names of images spell it. If it has no port, all its ports are allowed. */
            host: z
              .string()
              .max(255)
              .regex(/^([a-z0-9.-]+|\[[0-9a-f:]+\])(:[0-9]{1,5})?$/, 'must be host or host:port, in lower case'),
            plain_http: z.boolean().default(false),
          }),
        )
        .default([]),
    })
    .prefault({}),
  /** YAML file of the templates that can be launched. It replaces the built-in templates. */
  templates_file: AbsolutePath.optional(),
  /** YAML file of the environments that can be launched. It replaces the built-in environments. */
  environments_file: AbsolutePath.optional(),
  /** YAML file of the models that can be called. If it is missing, there are none. */
  models_file: AbsolutePath.optional(),
  /** Open requests of one API key, including streams. Above this, callers get 429. */
  open_inference_requests_per_key: z.int().min(1).max(RATE_MAX).default(64),
  /**
   * Open requests of all keys of one organisation together, including streams. Above this, callers get 429. By default, one organisation cannot
   * take all places of a model server, which are 256.
   */
  open_inference_requests_per_org: z.int().min(1).max(RATE_MAX).default(192),
  videos: z
    .strictObject({
      /** Jobs of one organisation that may be in progress at once. Above this, callers get 429. */
      open_per_org: z.int().min(1).max(RATE_MAX).default(20),
      /** The largest video file in MiB. A job with a larger one fails. */
      file_mib_max: z.int().min(1).max(FILE_MIB_MAX).default(1_024),
    })
    .prefault({}),
  files: z
    .strictObject({
      /** The largest uploaded file in MiB. Hosts take at most 64 GiB. */
      file_mib_max: z.int().min(1).max(65_536).default(512),
      /** The limit for all uploaded files of one organisation. */
      mib_per_org: z.int().min(1).max(FILE_MIB_MAX).default(10_240),
    })
    .prefault({}),
  /** Base address of the model hub's API, which knows the sizes of models. It may be private and speak plain HTTP. */
  model_hub_url: z
    .url({ protocol: /^https?$/, error: 'must be a URL like https://hub.example.com/api' })
    .regex(/[^/]$/, 'must not end with /')
    .default('https://huggingface.co/api'),
  /** Request rates. Above them, callers get 429 and the time after which to retry. */
  rate_limits: z
    .strictObject({
      per_key_per_second: PerSecond.default(100),
      /** Behind a proxy, name the proxy in `trust_proxy`. Otherwise all customers share one address. */
      per_ip_per_second: PerSecond.default(200),
      /** The number of requests that may arrive at once after a pause. */
      burst: z.int().min(1).max(RATE_MAX).default(400),
      /** Requests per second to models of one API key, which are not counted in `per_key_per_second`. */
      inference_per_key_per_second: PerSecond.default(20),
      inference_burst: z.int().min(1).max(RATE_MAX).default(40),
      /** Requests per second to models of all keys of one organisation together. */
      inference_per_org_per_second: PerSecond.default(100),
      inference_burst_per_org: z.int().min(1).max(RATE_MAX).default(200),
    })
    .prefault({}),
  webhooks: z
    .strictObject({
      /** Attempts of one delivery: at once, after 30 s, 5 min, 30 min, 2 h and, as the sixth, 12 h. */
      max_attempts: z.int().min(1).max(ATTEMPTS_MAX).default(5),
      /** Private networks in which endpoints may be, for private installations. */
      allowed_networks: z.array(z.union([z.cidrv4(NETWORK), z.cidrv6(NETWORK)])).default([]),
      allowed_ports: z.array(Port).min(1).default([443, 8443]),
    })
    .prefault({}),
  /** Days after which old rows are deleted. Money is never deleted. Idempotency-Keys live one day, the history of webhooks thirty. */
  retention: z
    .strictObject({
      /** Events of instances, machines and contracts. Older events are missing in `/v1/instances/{id}/events`. */
      events_days: z.int().min(30).max(DAYS_MAX).default(400),
      /** Counted from the end of the operation. At least one day more than the life of its Idempotency-Key. */
      operations_days: z.int().min(2).max(DAYS_MAX).default(90),
      /** Counted from the moment when nothing of the container is left on its host. */
      workloads_days: z.int().min(1).max(DAYS_MAX).default(30),
      /**
       * Counted from the end of a request to a model. At least a month, because readers of a bill look at receipts. Charges stay in the
       * books.
       */
      receipts_days: z.int().min(31).max(DAYS_MAX).default(90),
    })
    .prefault({}),
  /** Proxies (addresses or networks) whose X-Forwarded-For is trusted. */
  trust_proxy: z.array(z.union([z.ipv4(PROXY), z.ipv6(PROXY), z.cidrv4(PROXY), z.cidrv6(PROXY)])).default([]),
  /** Prometheus metrics without authentication. If left out, they are only on the operator's socket. */
  metrics_listen: Listen.optional(),
});
const Config = ConfigFields.superRefine((config, context) => {
  for (const { path, message } of contradictionsIn(config)) context.addIssue({ code: 'custom', path, message });
});
export type Config = z.infer<typeof Config>;

/** A package puts the configuration here. */
const INSTALLED = '/etc/svc-control-plane/control-plane.yaml';

/**
 * The configuration is in `file`. If that is undefined, it is in the file that SVC_CONFIG names, and without that in the `installed` one. `setting`
 * is what names it. @throws Error if nothing does
 */
export function configFile(file: string | undefined, installed = INSTALLED): { setting: string; path: string } {
  const named = [
    { setting: '--config', path: file },
    { setting: 'SVC_CONFIG', path: process.env['SVC_CONFIG'] },
    { setting: 'the default of --config', path: existsSync(installed) ? installed : undefined },
  ];
  for (const { setting, path } of named) if (path !== undefined && path !== '') return { setting, path };
  throw new Error(`name the configuration with --config <file> or SVC_CONFIG: ${installed} does not exist`);
}

/** Reads the file of `configFile`. Throws one Error that lists every problem with its line. */
export function readConfig(file: string | undefined, installed = INSTALLED): Config {
  const { setting, path } = configFile(file, installed);
  return parseYamlConfig(readNamed(setting, path, readText), Config, path);
}

/** The name under which an instance is reached by SSH. A URL has brackets around an IPv6 address, and SSH takes none. */
export function hostnameOf({ base_url: url, ssh }: Config, instanceId: string): string {
  return ssh.domain === undefined ? new URL(url).hostname.replace(/^\[|\]$/g, '') : `${instanceId}.${ssh.domain}`;
}

export function blobsDirectory({ blobs_dir: directory, secret_file: secret }: Config): string {
  return directory ?? join(dirname(secret), 'blobs');
}

/** The store of `blobs_s3`; undefined if files are on the local disk. @throws Error if a file of the key is missing or empty */
export function s3Settings({ blobs_s3: store }: Config): S3Settings | undefined {
  if (store === undefined) return undefined;
  const { endpoint, region, bucket, path_style: pathStyle } = store;
  const keyIn = (setting: 'access_key_file' | 'secret_key_file'): string => {
    const key = readNamed(`blobs_s3.${setting}`, store[setting], readText).trim();
    if (!/^[!-~]+$/.test(key)) throw new Error(`${store[setting]} must hold one key in one line (blobs_s3.${setting})`);
    return key;
  };
  const keys = { accessKey: keyIn('access_key_file'), secretKey: keyIn('secret_key_file') };
  return { endpoint, region, bucket, pathStyle, ...keys };
}

/** @throws Error if the file of the secret is missing */
export function oidcSettingsOf({ oidc }: Config): OidcSettings | undefined {
  return oidcSettings(oidc, (setting, file) => readNamed(setting, file, readText));
}

/** @throws Error if the file of the password is missing */
export function mailSettingsOf({ smtp }: Config): MailSettings | undefined {
  return mailSettings(smtp, (setting, file) => readNamed(setting, file, readText));
}

const readText = (path: string): string => readFileSync(path, 'utf8');

/** The service manager that started this process and expects messages; undefined if there is none. */
export function serviceManager(): ServiceManager | undefined {
  const { NOTIFY_SOCKET: notifySocket, WATCHDOG_USEC: usec } = process.env;
  if (notifySocket === undefined || notifySocket === '') return undefined;
  return { notifySocket, watchdogMs: usec === undefined ? undefined : Number(usec) / 1000 };
}

/** The system user that runs this command, and the user before sudo; for the audit journal. */
export function operatorName(): string {
  const user = systemUser();
  const before = process.env['SUDO_USER'];
  return (before === undefined || before === user ? user : `${user} (sudo by ${before})`).replaceAll(/[^ -~]/g, '?');
}

function systemUser(): string {
  try {
    return userInfo().username;
  } catch {
    return `uid ${process.getuid?.() ?? '?'}`;
  }
}
