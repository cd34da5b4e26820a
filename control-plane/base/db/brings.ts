// The metrics that this room adds to the house.
import type { Readiness } from './readiness.ts';

export function dbBrings({ readiness }: { readiness: Readiness }) {
  return {
    measures: [
      {
        name: 'svc_database_writable',
        help: '1 while a row can be written and made durable, as /readyz reports',
        kind: 'gauge' as const,
        read: async () => [{ value: (await readiness.check()).length === 0 ? 1 : 0 }],
      },
    ],
  };
}
