// The settings of a small world: generous limits, so that a test meets only those that it sets.
import { readEnvironments } from '../../control-plane/rental/launch/environments.ts';
import { readTemplates } from '../../control-plane/rental/launch/templates.ts';
import type { Settings } from '../../control-plane/settings.ts';

export const SETTINGS: Settings = {
  origin: 'https://api.example.com',
  signUpPolicy: 'open',
  oidc: undefined,
  platformFeeBps: 2000,
  launchHoldMinutes: 10,
  earningsDelayMs: 0,
  payouts: { every: 'week', minimumUcents: 2_500_000_000n, destinationDelayMs: 48 * 3_600_000 },
  reservationLeadMs: 24 * 3_600_000,
  lossBounds: {
    orgCreditsUcents: 10_000_000_000n,
    supplierCreditsUcents: 50_000_000_000n,
    supplierPaymentsUcents: 50_000_000_000n,
  },
  openLaunchesPerOrg: 1_000,
  unpaidGpuHoursPerOrg: 1_000_000,
  diskPriceUcentsPerGbHour: 20_000n,
  hostnameOf: (id) => `${id}.ssh.test`,
  appSite: { domain: 'apps.test', publicPort: 443 },
  sshPorts: { first: 30000, last: 30399 },
  sshHost: '127.0.0.1',
  presets: { templates: readTemplates(undefined), environments: readEnvironments(undefined) },
  webhookMaxAttempts: 5,
  models: [],
  openInferenceRequestsPerKey: 64,
  openInferenceRequestsPerOrg: 256,
  openVideosPerOrg: 20,
  videoBytesMax: 1024 ** 2,
  fileBytesMax: 1_000_000,
  fileBytesPerOrg: 3_000_000,
};
