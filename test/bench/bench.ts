// `npm run bench [name ...]`: prints ratios against a named peer measured in the same run. Never part of CI.
import { buildAgentPrograms } from '../../installer/agent-programs.ts';
import { benchApi } from './api.ts';
import { benchConsole } from './console.ts';
import { benchFiles } from './files.ts';
import { benchGateway } from './gateway.ts';
import { benchLaunch } from './launch.ts';
import { benchLedger } from './ledger.ts';
import { benchLinks } from './links.ts';
import { benchMetering } from './metering.ts';
import { benchPlacement } from './placement.ts';
import { benchSecondary } from './secondary.ts';
import { benchTunnel } from './tunnel.ts';
import { benchWebhooks } from './webhooks.ts';
import { benchWrites } from './writes.ts';

const BENCHES: Record<string, () => Promise<void>> = {
  ledger: benchLedger,
  metering: benchMetering,
  placement: benchPlacement,
  tunnel: benchTunnel,
  launch: benchLaunch,
  webhooks: benchWebhooks,
  api: benchApi,
  gateway: benchGateway,
  writes: benchWrites,
  secondary: benchSecondary,
  links: benchLinks,
  files: benchFiles,
  console: benchConsole,
};

const wanted = process.argv.slice(2);
const unknown = wanted.filter((name) => BENCHES[name] === undefined);
if (unknown.length > 0) {
  console.error(`Unknown benchmark ${unknown.join(', ')}: there are ${Object.keys(BENCHES).join(', ')}.`);
  process.exit(2);
}
// process.exit runs the exit handlers of the benches; a signal alone would not.
for (const signal of ['SIGINT', 'SIGTERM'] as const) process.once(signal, () => process.exit(1));
// Some benches start agents.
await buildAgentPrograms();
for (const [name, bench] of Object.entries(BENCHES)) {
  if (wanted.length === 0 || wanted.includes(name)) await bench();
}
