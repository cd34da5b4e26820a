// The newest videos of the organisation that one model makes or has made: how far they are, their files while these are kept, and their cost.
import { useEffect } from 'preact/hooks';
import type { VideoJob } from '../../../../shared/api/videos.ts';
import { beginningOf } from '../../../../shared/beginning.ts';
import { post } from '../core/api.ts';
import { useLiveList, whileVisible } from '../core/data.ts';
import { quoted, relative, time } from '../core/format.ts';
import type { LiveList } from '../core/reading.ts';
import { SameAs } from '../parts/command.tsx';
import { useAction } from '../parts/forms.tsx';
import { Badge, Empty, Problem, type Tone } from '../parts/layout.tsx';
import { type Column, LiveTable } from '../parts/table.tsx';

const PATH = '/v1/videos?limit=50';
const REREAD_MS = 3_000;
const MS = 1_000;
/** A prompt may fill a page. */
const TITLE_UNITS_MAX = 80;

const TONES: Record<VideoJob['status'], Tone> = {
  queued: 'info',
  in_progress: 'info',
  completed: 'ok',
  failed: 'bad',
  cancelled: '',
  expired: '',
};

/** `show` is called with the id of a video that the person wants to see. */
export function Videos({ modelId, show }: { modelId: string; show(id: string): void }) {
  const list = useLiveList<VideoJob>({ path: PATH, idOf: ({ id }) => id, type: 'video' });
  useProgress(list);
  return (
    <>
      <h2>Videos</h2>
      <LiveTable
        caption="Videos"
        list={list}
        columns={columnsOf(show)}
        only={({ model }) => model === modelId}
        empty={
          <Empty title="No video yet" cli={`svc api GET ${quoted('/videos?limit=50')}`}>
            Videos of {modelId} are listed here, also after a reload of the page.
          </Empty>
        }
      />
      <SameAs cli={`svc api GET ${quoted('/videos?limit=50')}`} curl={{ path: PATH }} />
    </>
  );
}

export function isOpen({ status }: VideoJob): boolean {
  return status === 'queued' || status === 'in_progress';
}

export function VideoStatus({ job }: { job: VideoJob }) {
  const { id, status, progress } = job;
  return (
    <>
      <Badge tone={TONES[status]}>{status.replace('_', ' ')}</Badge>
      {isOpen(job) && <progress max={100} value={progress} aria-label={`Progress of ${id}`} />}
    </>
  );
}

export function CancelVideo({ id, done }: { id: string; done?(): Promise<void> }) {
  const cancel = useAction(async () => {
    await post(`/v1/videos/${id}/cancel`);
    await done?.();
  });
  return (
    <>
      <button
        class="btn sm"
        type="button"
        aria-label={`Cancel ${id}`}
        disabled={cancel.isBusy}
        onClick={() => void cancel.run()}
      >
        {cancel.isBusy ? 'Cancelling…' : 'Cancel'}
      </button>
      {cancel.error !== undefined && <Problem error={cancel.error} />}
    </>
  );
}

/** The live stream has changes of the status only. */
function useProgress(list: LiveList<VideoJob>): void {
  const hasOpen = list.rows.value?.some((row) => isOpen(row.value)) ?? false;
  useEffect(() => (hasOpen ? whileVisible(REREAD_MS, () => void list.reload()) : undefined), [list, hasOpen]);
}

function columnsOf(show: (id: string) => void): readonly Column<VideoJob>[] {
  return [
    { title: 'Video', cell: (job) => <Name job={job} show={show} /> },
    {
      title: 'Status',
      cell: (job) => (
        <>
          <VideoStatus job={job} />
          {job.error !== null && <small>{job.error.message}</small>}
        </>
      ),
    },
    { title: 'Cost', class: 'num', cell: ({ cost }) => `$${cost}` },
    { title: 'What to do', cell: (job) => <WhatToDo job={job} /> },
  ];
}

function Name({ job, show }: { job: VideoJob; show(id: string): void }) {
  const { id, prompt, seconds, size } = job;
  const title = beginningOf(prompt ?? id, TITLE_UNITS_MAX);
  const facts = [`${seconds} s`, ...(size === null ? [] : [size]), `begun ${time(isoOf(job.created_at))}`].join(', ');
  return (
    <>
      {job.status === 'completed' ? (
        <button class="btn sm" type="button" aria-label={`Show ${title}`} onClick={() => show(id)}>
          <span class="brk">{title}</span>
        </button>
      ) : (
        <span class="brk">{title}</span>
      )}
      <br />
      <small class="quiet">{facts}</small>
    </>
  );
}

function WhatToDo({ job }: { job: VideoJob }) {
  const { id, status, expires_at: untilS } = job;
  if (isOpen(job)) return <CancelVideo id={id} />;
  if (status !== 'completed' || untilS === null) return <>–</>;
  return (
    <>
      <a class="btn sm" href={`/v1/videos/${id}/content`} download={`${id}.mp4`} aria-label={`Download ${id}`}>
        Download
      </a>
      <small>gone {relative(isoOf(untilS))}</small>
    </>
  );
}

function isoOf(unixSeconds: number): string {
  return new Date(unixSeconds * MS).toISOString();
}
