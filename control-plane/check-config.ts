// `check-config`: whether the daemon would start with the configuration and the files that it names. Nothing is created, and no database is opened.
import { existsSync } from 'node:fs';
import { systemClock } from '../shared/clock.ts';
import { messageOf } from '../shared/errors.ts';
import { createLog } from '../shared/log.ts';
import { warningsOf } from './config-warnings.ts';
import { type Config, configFile, mailSettingsOf, oidcSettingsOf, readConfig, s3Settings } from './config.ts';
import { openCertificates } from './listeners.ts';
import { readModels } from './models/catalog/models.ts';
import { depositSettings } from './money/deposits/settings.ts';
import { readFiles } from './operator-files.ts';
import { readEnvironments } from './rental/launch/environments.ts';
import { readTemplates } from './rental/launch/templates.ts';
import { existingSecret } from './secret-file.ts';

export interface CheckedConfig {
  /** The file that was checked. */
  path: string;
  /** Mistakes that keep the daemon from starting. Each names its setting, or its file and line. */
  faults: string[];
  warnings: string[];
}

/** `file` is the one of `--config`. @throws Error if no configuration is named */
export function checkConfig(file: string | undefined): CheckedConfig {
  const { path } = configFile(file);
  let config: Config;
  try {
    config = readConfig(file);
  } catch (error) {
    return { path, faults: [messageOf(error)], warnings: [] };
  }
  const faults = [...PARTS, readAll].flatMap((read) => faultOf(() => read(config)));
  const warnings = warningsOf(config, path).map(({ what }) => what);
  // What is wrong with a part is wrong with the whole too.
  return { path, faults: [...new Set(faults)], warnings };
}

const deps = { clock: systemClock(), log: createLog('control-plane', 'silent') };

/** The files are read one by one, so that a mistake in one of them does not hide those in the others. */
const PARTS: readonly ((config: Config) => unknown)[] = [
  (config) => readTemplates(config.templates_file),
  (config) => readEnvironments(config.environments_file),
  (config) => readModels(config.models_file),
  ({ deposits }) => (deposits === undefined ? undefined : depositSettings(deposits)),
  (config) => openCertificates({ ...config, apps: undefined }, deps),
  (config) => openCertificates({ ...config, tls: undefined }, deps),
  mailSettingsOf,
  oidcSettingsOf,
  s3Settings,
  (config) => (existsSync(config.secret_file) ? existingSecret(config) : undefined),
];

/** All that the daemon reads at its start. */
const readAll = (config: Config): unknown => readFiles(config, deps);

function faultOf(read: () => unknown): string[] {
  try {
    read();
    return [];
  } catch (error) {
    return [messageOf(error)];
  }
}
