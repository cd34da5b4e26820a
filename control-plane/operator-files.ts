// Reads the files of the operator: the settings that the configuration makes for the rooms, certificates, and passwords.
import { isDeepStrictEqual } from 'node:util';
import type { Clock } from '../shared/clock.ts';
import type { Log } from '../shared/log.ts';
import { messageOf } from '../shared/errors.ts';
import { ucentsFromDollars } from '../shared/money.ts';
import type { S3Settings } from './base/blobs/s3-requests.ts';
import type { MailSettings } from './base/mail/mail.ts';
import { type Config, hostnameOf, mailSettingsOf, oidcSettingsOf, s3Settings } from './config.ts';
import { type Certificates, openCertificates } from './listeners.ts';
import { readModels } from './models/catalog/models.ts';
import { depositSettings } from './money/deposits/settings.ts';
import { readEnvironments } from './rental/launch/environments.ts';
import { readTemplates } from './rental/launch/templates.ts';
import type { Settings } from './settings.ts';

/** Probes use this address if the SSH ports listen on every address. */
const LOOPBACK = '127.0.0.1';
const MIB = 1024 ** 2;

export interface OperatorFiles {
  config: Config;
  settings: Settings;
  certificates: Certificates;
  stores: Stores;
}

/** Settings with passwords that files of the operator contain. Undefined without such a server. */
export interface Stores {
  mail: MailSettings | undefined;
  s3: S3Settings | undefined;
}

/** @throws Error that names the setting or the file, and the mistake in it */
export function readFiles(config: Config, deps: { clock: Clock; log: Log }): OperatorFiles {
  return {
    config,
    settings: settingsOf(config),
    certificates: openCertificates(config, deps),
    stores: { mail: mailSettingsOf(config), s3: s3Settings(config) },
  };
}

/** The files as they are now. If there is a mistake in one of them, it is logged, and they count as they were `before`. */
export function readLatest(
  before: OperatorFiles,
  readAgain: () => Config,
  deps: { clock: Clock; log: Log },
): OperatorFiles {
  try {
    return readFiles(readAgain(), deps);
  } catch (error) {
    deps.log.error(
      { detail: messageOf(error) },
      'the files of the operator have a mistake; they count as they were before',
    );
    return before;
  }
}

/** @throws Error as `readFiles`, for a file of models, templates or environments */
export function settingsOf(config: Config): Settings {
  const everywhere = config.ssh.host === '0.0.0.0' || config.ssh.host === '::';
  return {
    origin: new URL(config.base_url).origin,
    signUpPolicy: config.sign_up,
    oidc: oidcSettingsOf(config),
    platformFeeBps: config.platform_fee_bps,
    launchHoldMinutes: config.launch_hold_minutes,
    earningsDelayMs: config.earnings_delay_hours * 3_600_000,
    payouts: {
      every: config.payouts.every,
      minimumUcents: ucentsFromDollars(config.payouts.minimum) ?? 0n,
      destinationDelayMs: config.payouts.destination_delay_hours * 3_600_000,
    },
    reservationLeadMs: config.reservation_lead_hours * 3_600_000,
    lossBounds: lossBoundsOf(config),
    deposits: config.deposits === undefined ? undefined : depositSettings(config.deposits),
    openLaunchesPerOrg: config.open_launches_per_org,
    unpaidGpuHoursPerOrg: config.unpaid_gpu_hours_per_org,
    diskPriceUcentsPerGbHour: ucentsFromDollars(config.disk_price_per_gb_hour) ?? 0n,
    hostnameOf: (instanceId) => hostnameOf(config, instanceId),
    appSite:
      config.apps === undefined ? undefined : { domain: config.apps.domain, publicPort: config.apps.public_port },
    sshPorts: config.ssh.port_range,
    sshHost: everywhere ? LOOPBACK : config.ssh.host,
    presets: {
      templates: readTemplates(config.templates_file),
      environments: readEnvironments(config.environments_file),
    },
    webhookMaxAttempts: config.webhooks.max_attempts,
    models: readModels(config.models_file),
    openInferenceRequestsPerKey: config.open_inference_requests_per_key,
    openInferenceRequestsPerOrg: config.open_inference_requests_per_org,
    openVideosPerOrg: config.videos.open_per_org,
    videoBytesMax: config.videos.file_mib_max * MIB,
    fileBytesMax: config.files.file_mib_max * MIB,
    fileBytesPerOrg: config.files.mib_per_org * MIB,
  };
}

/** Keys of the configuration that a reload applies. */
const RELOADED: ReadonlySet<string> = new Set<keyof Config>([
  'templates_file',
  'environments_file',
  'models_file',
  'rate_limits',
  'sign_up',
  'open_launches_per_org',
  'open_inference_requests_per_key',
  'open_inference_requests_per_org',
]);

/** Keys that have changed since the start, and that only the next start applies. */
export function waitsForRestart(started: Config, now: Config): string[] {
  const before = withoutReloaded(started);
  const after = withoutReloaded(now);
  return Object.keys({ ...before, ...after }).filter((name) => !isDeepStrictEqual(before[name], after[name]));
}

/** The keys that a reload does not apply. Of `videos` it applies a part, so the other part has a name of its own. */
function withoutReloaded({ videos, ...rest }: Config): Record<string, unknown> {
  const kept = Object.entries(rest).filter(([name]) => !RELOADED.has(name));
  return { ...Object.fromEntries(kept), 'videos.file_mib_max': videos.file_mib_max };
}

function lossBoundsOf({ loss_bounds: bounds }: Config): Settings['lossBounds'] {
  const ucents = (dollars: number): bigint => ucentsFromDollars(dollars) ?? 0n;
  return {
    orgCreditsUcents: ucents(bounds.credits_per_org),
    supplierCreditsUcents: ucents(bounds.credits_per_supplier),
    supplierPaymentsUcents: ucents(bounds.own_outages_per_supplier),
  };
}
