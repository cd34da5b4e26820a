// What this room adds to the house: metrics, the watch over the secondaries, and what operators see of them.
import type { LoopOptions } from '../../../shared/loop.ts';
import { differencesFromPrimary } from './agreement.ts';
import type { Query } from './db.ts';
import type { Secondaries } from './members.ts';
import type { Primacy } from './primacy.ts';
import type { Readiness } from './readiness.ts';

/** How often the primary looks at the leases of the secondaries. */
const WATCH_PERIOD_MS = 1_000;

interface Deps {
  readiness: Readiness;
  /** Undefined if there can be none. */
  secondaries: Secondaries | undefined;
  primacy(): Primacy | undefined;
}

export function dbBrings({ readiness, secondaries, primacy }: Deps) {
  return {
    waits: [differingSettings],
    loops: secondaries === undefined ? [] : [watchOf(secondaries)],
    measures: [
      {
        name: 'svc_secondaries',
        help: 'Control planes that serve beside the primary',
        kind: 'gauge' as const,
        read: async () => [{ value: (await secondaries?.count()) ?? 0 }],
      },
      {
        name: 'svc_primary_since_timestamp_seconds',
        help: 'When this control plane became the primary; how: start, given_back (the former one stopped) or ran_out (it died)',
        kind: 'gauge' as const,
        labels: ['how'],
        read: () => samplesOf(primacy()),
      },
      {
        name: 'svc_database_writable',
        help: '1 while a row can be written and made durable, as /readyz reports',
        kind: 'gauge' as const,
        everywhere: true,
        read: async () => [{ value: (await readiness.check()).length === 0 ? 1 : 0 }],
      },
    ],
  };
}

function samplesOf(primacy: Primacy | undefined): { labels: { how: string }; value: number }[] {
  return primacy === undefined ? [] : [{ labels: { how: primacy.how }, value: primacy.sinceMs / 1_000 }];
}

async function differingSettings(query: Query) {
  const differences = await differencesFromPrimary(query);
  return differences.map(({ member, settings, sinceMs }) => ({
    kind: 'settings' as const,
    id: member,
    what: `The control plane ${member} has other values than the primary: ${settings.join(', ')}. After a takeover, customers would get those.`,
    sinceMs,
    command: 'svc-control-plane check-config',
  }));
}

function watchOf({ endDead }: Secondaries): LoopOptions {
  return { name: 'secondaries', periodMs: WATCH_PERIOD_MS, run: async () => void (await endDead()) };
}
