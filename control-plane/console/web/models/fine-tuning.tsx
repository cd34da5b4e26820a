// Fine-tuning jobs, and a new one with a budget that it never exceeds.
import { Link } from 'wouter-preact';
import type { FineTuningJob } from '../../../../shared/api/fine-tuning.ts';
import { dollars, time } from '../core/format.ts';
import { may } from '../core/session.ts';
import { Badge, Empty, Head, type Tone } from '../parts/layout.tsx';
import type { Column } from '../parts/table.tsx';
import { useAfterList } from './use-after-list.ts';
import { AfterTable } from './after-table.tsx';
import { NewJob } from './new-job.tsx';

const MS = 1_000;

const TONES: Record<FineTuningJob['status'], Tone> = {
  validating: 'info',
  queued: 'info',
  running: 'info',
  succeeded: 'ok',
  failed: 'bad',
  cancelled: '',
};

const COLUMNS: readonly Column<FineTuningJob>[] = [
  {
    title: 'Job',
    cell: ({ id, suffix }) => (
      <>
        <Link class="brk" href={`/console/fine-tuning/${id}`}>
          {suffix ?? id}
        </Link>
        {suffix !== null && (
          <>
            <br />
            <small class="quiet">
              <code>{id}</code>
            </small>
          </>
        )}
      </>
    ),
  },
  { title: 'Status', cell: (job) => <JobStatus job={job} /> },
  { title: 'Base model', class: 'w', cell: ({ model }) => model },
  { title: 'Begun (UTC)', class: 'w', cell: ({ created_at: at }) => time(new Date(at * MS).toISOString()) },
  {
    title: 'Cost',
    class: 'num',
    cell: ({ svc }) => (
      <>
        {dollars(svc.cost_usd)}
        <small>of at most {dollars(svc.max_budget_usd)}</small>
      </>
    ),
  },
];

export function FineTuning() {
  const list = useAfterList<FineTuningJob>('/v1/fine_tuning/jobs?limit=50', 'fine_tuning_job');
  return (
    <>
      <Head title="Fine-tuning" same={{ cli: 'svc job list', curl: { path: '/v1/fine_tuning/jobs?limit=50' } }} />
      {may('finetuning: write') && <NewJob />}
      <AfterTable
        caption="Fine-tuning jobs"
        list={list}
        columns={COLUMNS}
        empty={
          <Empty title="No job yet" cli="svc job create --model MODEL --file FILE --budget 20">
            A job trains an adapter for a base model with your examples. The result is its files.
          </Empty>
        }
      />
    </>
  );
}

export function JobStatus({ job: { status, error } }: { job: FineTuningJob }) {
  return (
    <>
      <Badge tone={TONES[status]}>{status}</Badge>
      {error !== null && <small>{error.message}</small>}
    </>
  );
}
