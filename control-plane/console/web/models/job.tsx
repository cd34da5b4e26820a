// One fine-tuning job: its progress, the curve of its loss, its events, and its files.
import { useState } from 'preact/hooks';
import { Link } from 'wouter-preact';
import type { FineTuningEvent, FineTuningJob } from '../../../../shared/api/fine-tuning.ts';
import { post } from '../core/api.ts';
import { useResource } from '../core/data.ts';
import { count, dollars, duration, time } from '../core/format.ts';
import type { ScreenProps } from '../core/screen.ts';
import { may } from '../core/session.ts';
import { SameAs } from '../parts/command.tsx';
import { Dialog, Form, useAction } from '../parts/forms.tsx';
import { Badge, Card, Empty, Figures, Head, Note, Problem } from '../parts/layout.tsx';
import { RowsTable } from '../parts/table.tsx';
import { JobStatus } from './fine-tuning.tsx';
import { useJobEvents } from './job-events.ts';
import { lossOf, pathOf } from './loss.ts';

const MS = 1_000;
const REREAD_MS = 15_000;
/** Number of events that the page shows until the person asks for all. */
const EVENTS_SHOWN = 20;
const iso = (seconds: number): string => new Date(seconds * MS).toISOString();
const isOpen = ({ status }: FineTuningJob): boolean =>
  status === 'validating' || status === 'queued' || status === 'running';

export function Job({ params: { id = '' } }: ScreenProps) {
  const path = `/v1/fine_tuning/jobs/${encodeURIComponent(id)}`;
  const { data, error, reload } = useResource<FineTuningJob>(path, {
    on: [{ type: 'fine_tuning_job', id }],
    everyMs: REREAD_MS,
  });
  const [isCancelling, setCancelling] = useState(false);
  const job = data.value;
  return (
    <>
      <Head
        title={job?.suffix ?? 'Fine-tuning job'}
        crumb={
          <>
            <Link href="/console/fine-tuning">Fine-tuning</Link> / <code>{id}</code>
          </>
        }
        same={{ cli: `svc job get ${id}`, curl: { path } }}
      >
        {job !== undefined && isOpen(job) && may('finetuning: write') && (
          <button class="btn kill" type="button" onClick={() => setCancelling(true)}>
            Cancel the job
          </button>
        )}
      </Head>
      {error.value !== undefined && <Problem error={error.value} retry={() => void reload()} />}
      {job !== undefined && <Shown job={job} />}
      {isCancelling && <Cancel path={path} id={id} close={() => setCancelling(false)} done={() => void reload()} />}
    </>
  );
}

function Shown({ job }: { job: FineTuningJob }) {
  const { events, error } = useJobEvents(job.id, isOpen(job));
  const metrics = events.findLast(({ type }) => type === 'metrics')?.data;
  const { step, total_steps: total, eta_seconds: eta } = metrics ?? {};
  return (
    <>
      <Figures
        figures={[
          { label: 'Status', value: <JobStatus job={job} /> },
          { label: 'Base model', value: job.model, small: job.method.type },
          { label: 'Cost', value: dollars(job.svc.cost_usd), small: `at most ${dollars(job.svc.max_budget_usd)}` },
          {
            label: 'Step',
            value: typeof step === 'number' ? count(step) : '–',
            small: stepText(total, isOpen(job) ? eta : undefined),
          },
          {
            label: 'Begun (UTC)',
            value: time(iso(job.created_at)),
            small: job.finished_at === null ? 'not ended' : `ended ${time(iso(job.finished_at))}`,
          },
        ]}
      />
      {job.error !== null && (
        <Note tone="bad">
          {job.error.message} <code>{job.error.code}</code>
        </Note>
      )}
      {error !== undefined && <Problem error={error} />}
      <Results urls={job.result_files} />
      <Loss events={events} />
      <Events id={job.id} events={events} />
    </>
  );
}

function stepText(total: unknown, eta: unknown): string {
  if (typeof total !== 'number') return 'not reported yet';
  return `of ${count(total)}${typeof eta === 'number' ? `, ${duration(eta)} left` : ''}`;
}

function Results({ urls }: { urls: readonly string[] }) {
  if (urls.length === 0) return null;
  return (
    <Card title="Files of the adapter" note="Each link is good for 15 minutes">
      <ul class="pad stack tight">
        {urls.map((url) => (
          <li key={url}>
            <a href={url} download>
              {decodeURIComponent(new URL(url, location.href).pathname.split('/').at(-1) ?? url)}
            </a>
          </li>
        ))}
      </ul>
    </Card>
  );
}

function Loss({ events }: { events: readonly FineTuningEvent[] }) {
  const points = lossOf(events);
  const [first, last] = [points.at(0), points.at(-1)];
  if (first === undefined || last === undefined || points.length < 2) return null;
  const top = Math.max(...points.map(({ loss }) => loss)) || 1;
  return (
    <Card title="Loss" note={`${first.loss.toFixed(4)} at first, ${last.loss.toFixed(4)} now`}>
      <div class="pad">
        <p class="small quiet num">{top.toFixed(4)} at the top line, 0 at the lower one</p>
        <svg
          class="plot tall"
          viewBox="0 0 100 100"
          preserveAspectRatio="none"
          role="img"
          aria-label={`Loss from ${first.loss.toFixed(4)} at step ${first.step} to ${last.loss.toFixed(4)} at step ${last.step}`}
        >
          <line x1="0" x2="100" y1="0" y2="0" />
          <line x1="0" x2="100" y1="100" y2="100" />
          <path d={pathOf(points, top)} />
        </svg>
        <div class="axis">
          <span>step {count(first.step)}</span>
          <span>step {count(last.step)}</span>
        </div>
      </div>
    </Card>
  );
}

function Events({ id, events }: { id: string; events: readonly FineTuningEvent[] }) {
  const [isWhole, setWhole] = useState(false);
  const newest = events.toReversed();
  return (
    <Card
      title="Events"
      note="Newest first"
      footer={
        <div class="stack tight">
          {!isWhole && events.length > EVENTS_SHOWN && (
            <p class="row">
              <button class="btn sm" type="button" onClick={() => setWhole(true)}>
                Show all {count(events.length)}
              </button>
            </p>
          )}
          <SameAs cli={`svc job events ${id}`} curl={{ path: `/v1/fine_tuning/jobs/${id}/events` }} />
        </div>
      }
    >
      {events.length === 0 ? (
        <Empty title="Nothing was reported yet">What the trainer reports is listed here.</Empty>
      ) : (
        <RowsTable
          caption="Events"
          rows={isWhole ? newest : newest.slice(0, EVENTS_SHOWN)}
          columns={[
            { title: 'When (UTC)', cell: ({ created_at: at }) => time(iso(at)) },
            {
              title: 'Level',
              class: 'w',
              cell: ({ level }) => (
                <Badge tone={level === 'error' ? 'bad' : level === 'warn' ? 'warn' : ''}>{level}</Badge>
              ),
            },
            { title: 'What', cell: ({ message }) => <span class="brk">{message}</span> },
          ]}
        />
      )}
    </Card>
  );
}

interface CancelProps {
  path: string;
  id: string;
  close(): void;
  done(): void;
}

function Cancel({ path, id, close, done }: CancelProps) {
  const action = useAction(async () => {
    await post(`${path}/cancel`);
    done();
    close();
  });
  return (
    <Dialog title="Cancel the job?" close={close}>
      <Form action={action} submit="Cancel the job" busy="Cancelling…" tone="kill" cancel={close}>
        <p class="small dim">
          What was trained until its last checkpoint is kept and charged. The rest of the budget is given back.
        </p>
      </Form>
      <SameAs cli={`svc job cancel ${id}`} curl={{ method: 'POST', path: `${path}/cancel` }} />
    </Dialog>
  );
}
