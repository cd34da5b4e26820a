// What all control planes of a database must have alike, because it decides about money or about what customers see. They may differ for some minutes
// while their configuration is changed, so nothing is refused: the log of one that starts says it, and so does the overview while it lasts.
import type { Clock } from '../shared/clock.ts';
import type { Log } from '../shared/log.ts';
import { type Digests, type Difference, differencesFrom, digestsOf, writeSettings } from './base/db/agreement.ts';
import type { Db, Query } from './base/db/db.ts';
import { blobsDirectory, type Config } from './config.ts';
import type { CatalogModel } from './models/catalog/models.ts';
import type { Settings } from './settings.ts';

/** `settings` are those in use: a reload has changed some of them since the process started with `config`. */
export function agreedDigests(config: Config, settings: Settings): Digests {
  const { blobs_s3: s3, ssh } = config;
  return digestsOf({
    base_url: config.base_url,
    sign_up: settings.signUpPolicy,
    'ssh.domain': ssh.domain,
    'ssh.port_range': ssh.port_range,
    apps: settings.appSite,
    'blobs_dir or blobs_s3': s3 === undefined ? blobsDirectory(config) : [s3.endpoint, s3.bucket],
    platform_fee_bps: config.platform_fee_bps,
    disk_price_per_gb_hour: config.disk_price_per_gb_hour,
    launch_hold_minutes: config.launch_hold_minutes,
    earnings_delay_hours: config.earnings_delay_hours,
    payouts: config.payouts,
    loss_bounds: config.loss_bounds,
    deposits: depositsOf(settings),
    models_file: modelsOf(settings),
    templates_file: settings.presets.templates,
    environments_file: settings.presets.environments,
  });
}

export interface Agreement {
  /** A process that stands by calls it. It writes nothing yet. */
  compareFirst(query: Query): Promise<void>;
  /** Writes what this process has for the others, and compares it with what they have. */
  enter(db: Db, id: string, settings: Settings): Promise<void>;
  /** Writes what this process has since a reload. */
  update(db: Db, id: string, settings: Settings): Promise<void>;
}

/** On SQLite there is only one control plane. */
export function openAgreement(config: Config, before: Settings, { clock, log }: { clock: Clock; log: Log }): Agreement {
  let warned = '';
  /** A process that stands by compares again when it serves. Each difference is logged once. */
  const warn = (differences: readonly Difference[]): void => {
    const settings = [...new Set(differences.flatMap((each) => each.settings))];
    const text = settings.join(', ');
    if (text === '' || text === warned) return;
    warned = text;
    const others = differences.map(({ member }) => member);
    log.warn({ settings, others }, DIFFERS);
  };
  const update: Agreement['update'] = async (db, id, settings) => {
    if (db.dialect === 'sqlite') return;
    await writeSettings(db, id, { digests: agreedDigests(config, settings), nowMs: clock.now() });
  };
  return {
    compareFirst: async (query) => {
      // A database of an older version has no such table.
      warn(await differencesFrom(query, undefined, agreedDigests(config, before)).catch(() => []));
    },
    enter: async (db, id, settings) => {
      await update(db, id, settings);
      warn(await differencesFrom(db.read, id, agreedDigests(config, settings)));
    },
    update,
  };
}

const DIFFERS =
  'another control plane of this database has other values of settings on which all must agree: after a takeover, customers would get the other ones. Give all of them the same configuration and files';

/** Each of them may ask a node of its own. */
function depositsOf({ deposits }: Settings): unknown {
  if (deposits === undefined) return undefined;
  const { chains, ...rest } = deposits;
  const contracts = [...chains].map(([chain, { contracts: ofChain, finality }]) => [chain, ofChain, finality]);
  return { ...rest, contracts };
}

/** A key of a model server is no part of it. */
function modelsOf({ models }: Settings): unknown {
  const keyless = (upstreams: CatalogModel['upstreams']): unknown[] =>
    upstreams.map((upstream) => ({ ...upstream, apiKey: undefined }));
  return models.map(({ upstreams, economy, ...model }) => ({
    ...model,
    upstreams: keyless(upstreams),
    economy: economy && { ...economy, upstreams: keyless(economy.upstreams) },
  }));
}
