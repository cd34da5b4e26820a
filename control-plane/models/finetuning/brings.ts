// What this room brings to the house.
import { type Db, sql } from '../../base/db/db.ts';
import type { Feed } from '../../base/events/events.ts';
import type { Measure } from '../../base/http/metrics.ts';
import { countDue, type DueRows } from '../../base/http/overview.ts';
import type { Billed } from '../../money/ledger/wallets.ts';
import type { FineTuningRoom } from './finetuning.ts';
import { KINDS } from './money.ts';
import { fineTuningRoutes } from './routes.ts';
import { countByStatus } from './store.ts';
import { fineTuningHoldFaults, fineTuningProof } from './verify.ts';

interface Deps {
  db: Db;
  fineTuning: FineTuningRoom;
}

export function fineTuningBrings({ db, fineTuning }: Deps) {
  return {
    routes: fineTuningRoutes({ db, fineTuning }),
    drivers: [fineTuning.driver],
    dueRows: [DUE_JOBS],
    measures: measures(db),
    charges: fineTuningProof,
    billed: { [KINDS.charge]: { section: 'fine_tuning', by: 'subject' } } satisfies Billed,
    invariants: [fineTuningHoldFaults],
    feeds: [{ of: 'fine_tuning_job', scope: 'finetuning:read', describe: fineTuning.describe } satisfies Feed],
  };
}

const DUE_JOBS: DueRows = {
  kind: 'finetuning_jobs',
  done: { driver: 'finetuning' },
  count: (query, nowMs) => countDue(query, sql`select due_ms from finetuning_jobs where due_ms <= ${nowMs}`),
};

function measures(db: Db): Measure[] {
  return [
    {
      name: 'svc_finetuning_jobs',
      help: 'Fine-tuning jobs that have not ended, by status',
      kind: 'gauge',
      labels: ['status'],
      read: async () =>
        (await countByStatus(db.read)).map(({ status, count }) => ({ labels: { status }, value: count })),
    },
  ];
}
