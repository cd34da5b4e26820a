// The control plane's configuration: one YAML file, unknown keys refused with their line. The only place that reads the environment.
import { existsSync, linkSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { userInfo } from 'node:os';
import { dirname, join } from 'node:path';
import { z } from 'zod';
import { ucentsFromDollars } from '../shared/money.ts';
import type { Rng } from '../shared/rng.ts';
import { parseYamlConfig, readNamed } from '../shared/yaml-config.ts';
import type { ServiceManager } from './base/systemd/systemd.ts';
import { ATTEMPTS_MAX } from './rental/webhooks/schedule.ts';

const SECRET_BYTES = 32;
/** Unix socket paths end at 107 characters. */
const SOCKET_PATH_CHARS_MAX = 107;

/** Above what one process can answer: no limit at all. */
const RATE_MAX = 1_000_000;

/** A terabyte. */
const FILE_MIB_MAX = 1_048_576;

/** A century. */
const DAYS_MAX = 36_500;

const Port = z.int().min(1).max(65_535);
const AbsolutePath = z.string().startsWith('/', 'must be an absolute path');
/** Whole dollars, up to a billion. */
const Dollars = z.int().min(0).max(1_000_000_000);
const DomainName = z
  .string()
  .max(253)
  .regex(/^[a-z0-9]([a-z0-9-]*[a-z0-9])?(\.[a-z0-9]([a-z0-9-]*[a-z0-9])?)*$/, 'must be a lower-case domain name');
const PerSecond = z.number().positive().max(RATE_MAX);
/** Port 0 lets the system choose, for tests and demonstrations. */
const Listen = z.strictObject({ host: z.string().min(1), port: z.int().min(0).max(65_535) });

/** PEM files, the certificate with its chain. New ones are served without a restart. */
const Tls = z.strictObject({ certificate_file: AbsolutePath, key_file: AbsolutePath });

const Database = z
  .strictObject({
    /** File; it and its directory must be this process's own. */
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
  /** Of `listen`. Left out: plain HTTP, for a proxy in front that ends TLS. */
  tls: Tls.optional(),
  /** Where customers and agents find the API. */
  base_url: z
    .url({ protocol: /^https?$/, error: 'must be a URL like https://api.example.com/v1' })
    .regex(/\/v1$/, 'must end with /v1')
    .default('http://127.0.0.1:8080/v1'),
  database: Database.default({ sqlite: '/var/lib/svc-control-plane/control-plane.db' }),
  /** Operator commands; file mode 0600. */
  admin_socket: AbsolutePath.max(SOCKET_PATH_CHARS_MAX).default('/run/svc-control-plane/admin.sock'),
  /** 32 random bytes in hex that sign cursors and seal what must not be readable in the database. Made at the first start. */
  secret_file: AbsolutePath.default('/var/lib/svc-control-plane/secret'),
  /** What customers upload and what models make. Left out: `blobs` beside `secret_file`. Made where it is missing. */
  blobs_dir: AbsolutePath.optional(),
  log_level: z.enum(['trace', 'debug', 'info', 'warn', 'error', 'silent']).default('info'),
  ssh: z
    .strictObject({
      /** Address that the SSH ports listen on. */
      host: z.string().min(1).default('0.0.0.0'),
      /** A wildcard DNS name of this host: instances are reached at <id>.<domain>. Left out, at the host of `base_url`. */
      domain: DomainName.optional(),
      /** One port for each running instance. */
      port_range: PortRange.default({ first: 20_000, last: 29_999 }),
    })
    .prefault({}),
  /** Applications inside instances, each at a host name of its own. Left out: they are reached by SSH forwarding only. */
  apps: z
    .strictObject({
      /** Its wildcard DNS name leads here: <id>.<domain>. A domain of its own, on the Public Suffix List: its hosts are tenants. */
      domain: DomainName,
      listen: Listen,
      /** What browsers connect to. */
      public_port: Port.default(443),
      /** Of a wildcard certificate. Left out: plain HTTP, for a proxy in front that ends TLS. */
      tls: Tls.optional(),
    })
    .optional(),
  /** The platform's share of what a customer pays, in hundredths of a percent. */
  platform_fee_bps: z.int().min(0).max(10_000).default(1_500),
  /** What a supplier earned can be paid out so long after it was entered. Until then its customer may dispute it. */
  earnings_delay_hours: z.int().min(0).max(8_760).default(48),
  /** The GPUs of a reservation contract leave the market so long before it begins. */
  reservation_lead_hours: z.int().min(0).max(8_760).default(24),
  /** What uploads and videos leave free of the disk under `blobs_dir`, so that a database on it goes on: the larger of the two. */
  disk_reserve: z
    .strictObject({
      percent: z.number().min(0).max(90).default(10),
      gib: z.number().min(0).max(1_000_000).default(5),
    })
    .prefault({}),
  /** Dollars that may be given away in any 24 hours; what is above them waits for `admin credit release` or `refuse`, with an alarm. */
  loss_bounds: z
    .strictObject({
      /** Uncharged time (outages, broken GPUs, our own absence) of one organisation. */
      credits_per_org: Dollars.default(100),
      /** Uncharged time on the hosts of one supplier, which loses it. */
      credits_per_supplier: Dollars.default(500),
      /** What one supplier is paid for time in which the control plane itself was away. */
      own_outages_per_supplier: Dollars.default(500),
    })
    .prefault({}),
  /** Dollars an hour for each GB of an instance's disk beyond the included 100, on hosts that honour disk_gb. */
  disk_price_per_gb_hour: z
    .number()
    .min(0)
    .max(1)
    .refine((dollars) => ucentsFromDollars(dollars) !== undefined, 'must have at most 8 decimals')
    .default(0.0002),
  /** Launches of one organisation that may be on their way at once; above them callers are told 429. */
  open_launches_per_org: z.int().min(1).max(RATE_MAX).default(50),
  /**
   * GPU hours that launches of one organisation may hold without running, in any 24 hours; above them callers are told 429. A quarter of the
   * GPU time that it paid for in that time comes on top.
   */
  unpaid_gpu_hours_per_org: z.int().min(1).max(RATE_MAX).default(16),
  /**
   * A stop lets SSH sessions and other connections into instances last for so long, while new ones are refused; 0 cuts them at once.
   */
  drain_seconds: z.int().min(0).max(3_600).default(10),
  /** A launch needs a balance for this long. */
  launch_hold_minutes: z.int().min(1).max(1_440).default(10),
  images: z
    .strictObject({
      /**
       * Image registries that may be at private addresses, or speak plain HTTP. Name their token servers too. All others must be on
       * the internet: customers name them, and must not be able to reach inside.
       */
      private_registries: z
        .array(
          z.strictObject({
            /** As in the names of images; without a port, all of its ports. */
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
  /** YAML file of the templates that can be launched, in place of those that come with the service. */
  templates_file: AbsolutePath.optional(),
  /** YAML file of the environments that can be launched, in place of those that come with the service. */
  environments_file: AbsolutePath.optional(),
  /** YAML file of the models that can be called. Left out, there are none. */
  models_file: AbsolutePath.optional(),
  /** Of one API key, streams included, that may be open at once; above them callers are told 429. */
  open_inference_requests_per_key: z.int().min(1).max(RATE_MAX).default(64),
  videos: z
    .strictObject({
      /** Jobs of one organisation that may be on their way at once; above them callers are told 429. */
      open_per_org: z.int().min(1).max(RATE_MAX).default(20),
      /** Of one file, in MiB; a job with a larger one fails. */
      file_mib_max: z.int().min(1).max(FILE_MIB_MAX).default(1_024),
    })
    .prefault({}),
  files: z
    .strictObject({
      /** Of one uploaded file, in MiB. */
      file_mib_max: z.int().min(1).max(FILE_MIB_MAX).default(512),
      /** Of all uploaded files of one organisation. */
      mib_per_org: z.int().min(1).max(FILE_MIB_MAX).default(10_240),
    })
    .prefault({}),
  /** Base of the model hub's API: how large models are is asked there. May be private, and speak plain HTTP. */
  model_hub_url: z
    .url({ protocol: /^https?$/, error: 'must be a URL like https://hub.example.com/api' })
    .regex(/[^/]$/, 'must not end with /')
    .default('https://huggingface.co/api'),
  /** Requests; above them callers are told 429 and when to come back. */
  rate_limits: z
    .strictObject({
      per_key_per_second: PerSecond.default(100),
      /** Behind a proxy, name it in `trust_proxy`: else all customers are one address. */
      per_ip_per_second: PerSecond.default(200),
      /** How many may come at once after a pause. */
      burst: z.int().min(1).max(RATE_MAX).default(400),
      /** Requests to models are counted for themselves. */
      inference_per_key_per_second: PerSecond.default(20),
      inference_burst: z.int().min(1).max(RATE_MAX).default(40),
    })
    .prefault({}),
  webhooks: z
    .strictObject({
      /** Of one delivery: at once, after 30 s, 5 min, 30 min, 2 h and, with a sixth, 12 h. */
      max_attempts: z.int().min(1).max(ATTEMPTS_MAX).default(5),
      /** Networks that endpoints may stand in although they are not public, for private installations. */
      allowed_networks: z.array(z.union([z.cidrv4(), z.cidrv6()])).default([]),
      allowed_ports: z.array(Port).min(1).default([443, 8443]),
    })
    .prefault({}),
  /** Days after which the past is forgotten. Money never is; Idempotency-Keys live a day, the history of webhooks thirty. */
  retention: z
    .strictObject({
      /** What happened to instances, machines and contracts. Answers of `/v1/instances/{id}/events` end there. */
      events_days: z.int().min(30).max(DAYS_MAX).default(400),
      /** After an operation is over. A day more than its Idempotency-Key lives, at least. */
      operations_days: z.int().min(2).max(DAYS_MAX).default(90),
      /** After the last trace of a container is gone from its host. */
      workloads_days: z.int().min(1).max(DAYS_MAX).default(30),
      /** After a request to a model is over. A month at least: whoever reads a bill looks at them. What was charged stays in the books. */
      receipts_days: z.int().min(31).max(DAYS_MAX).default(90),
    })
    .prefault({}),
  /** Proxies (addresses or networks) whose X-Forwarded-For is believed. */
  trust_proxy: z.array(z.union([z.ipv4(), z.ipv6(), z.cidrv4(), z.cidrv6()])).default([]),
  /** Prometheus metrics without authentication; left out, they are on the operator's socket only. */
  metrics_listen: Listen.optional(),
});
/** Customers and agents would be told the wrong address. */
const Config = ConfigFields.refine((config) => config.tls === undefined || config.base_url.startsWith('https:'), {
  path: ['base_url'],
  error: 'must begin with https: where tls is set',
});
export type Config = z.infer<typeof Config>;

/** Reads `file`, or the one that SVC_CONFIG names. Throws one Error that lists every problem with its line. */
export function readConfig(file: string | undefined): Config {
  const path = file ?? process.env['SVC_CONFIG'];
  if (path === undefined || path === '') throw new Error('name the configuration with --config <file> or SVC_CONFIG');
  const setting = file === undefined ? 'SVC_CONFIG' : '--config';
  return parseYamlConfig(readNamed(setting, path, readText), Config, path);
}

export function blobsDirectory({ blobs_dir: directory, secret_file: secret }: Config): string {
  return directory ?? join(dirname(secret), 'blobs');
}

/** For what this process makes itself. @throws Error that lists those that are missing, and how to make them */
export function assertDirectories(config: Config): void {
  const { admin_socket, secret_file, database } = config;
  const files = { admin_socket, secret_file, ...('sqlite' in database ? { 'database.sqlite': database.sqlite } : {}) };
  const missing = Object.entries(files).filter(([, file]) => !existsSync(dirname(file)));
  if (missing.length === 0) return;
  const directories = [...new Set(missing.map(([, file]) => dirname(file)))].join(' ');
  const settings = missing.map(([setting]) => setting).join(', ');
  throw new Error(`there is no directory for ${settings}: make it with install -d -m 0700 ${directories}`);
}

const readText = (path: string): string => readFileSync(path, 'utf8');

/** The service manager that started this process and wants to hear from it; undefined where there is none. */
export function serviceManager(): ServiceManager | undefined {
  const { NOTIFY_SOCKET: notifySocket, WATCHDOG_USEC: usec } = process.env;
  if (notifySocket === undefined || notifySocket === '') return undefined;
  return { notifySocket, watchdogMs: usec === undefined ? undefined : Number(usec) / 1000 };
}

/** The system user that runs this command, and who became that user by sudo; for the audit journal. */
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

/** The secret in `secret_file`, which is made where it does not exist yet. */
export function readSecret(config: Config, rng: Rng): Buffer {
  const path = config.secret_file;
  const made = `${path}.${Buffer.from(rng.bytes(8)).toString('hex')}`;
  writeFileSync(made, `${Buffer.from(rng.bytes(SECRET_BYTES)).toString('hex')}\n`, { mode: 0o600, flush: true });
  try {
    // Never overwrites, and is whole at once: replicas on one disk and a crash in between both end with one good secret.
    linkSync(made, path);
  } catch (error) {
    if (!(error instanceof Error && 'code' in error && error.code === 'EEXIST')) throw error;
  } finally {
    rmSync(made);
  }
  return existingSecret(config);
}

/** @throws Error where it is not there, or not a secret */
export function existingSecret({ secret_file: path }: Config): Buffer {
  if (!existsSync(path))
    throw new Error(`${path} is not there: put the secret that belongs to the database back first`);
  const text = readFileSync(path, 'utf8').trim();
  if (!/^[0-9a-f]{64}$/.test(text))
    throw new Error(`${path} must hold ${SECRET_BYTES} bytes as 64 hexadecimal characters`);
  return Buffer.from(text, 'hex');
}
