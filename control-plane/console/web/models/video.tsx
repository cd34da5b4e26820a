// A video from a prompt. The screen follows the job until the video can be shown.
import { useMemo, useState } from 'preact/hooks';
import type { Model } from '../../../../shared/api/model.ts';
import type { VideoJob } from '../../../../shared/api/videos.ts';
import { post } from '../core/api.ts';
import { useResource } from '../core/data.ts';
import { duration } from '../core/format.ts';
import { openSameKey } from '../core/same-key.ts';
import { useAction } from '../parts/forms.tsx';
import { Badge, Note, Problem, type Tone } from '../parts/layout.tsx';
import { type PromptBody, PromptCard } from './prompt-card.tsx';

const REREAD_MS = 3_000;

const TONES: Record<VideoJob['status'], Tone> = {
  queued: 'info',
  in_progress: 'info',
  completed: 'ok',
  failed: 'bad',
  cancelled: '',
  expired: '',
};

export function Video({ model }: { model: Model }) {
  const [id, setId] = useState<string>();
  const withSameKey = useMemo(openSameKey, []);
  const ask = async (body: PromptBody): Promise<void> => {
    const made = await withSameKey(body, (options) => post<VideoJob>('/v1/videos', body, options));
    setId(made.id);
  };
  const words = { path: '/videos', submit: 'Make the video', busy: 'Asking…' };
  return (
    <PromptCard model={model} parameters={model.parameters ?? []} {...words} ask={ask}>
      {id !== undefined && <Job key={id} id={id} />}
    </PromptCard>
  );
}

function Job({ id }: { id: string }) {
  const path = `/v1/videos/${id}`;
  const { data, error, reload } = useResource<VideoJob>(path, { on: [{ type: 'video', id }], everyMs: REREAD_MS });
  const cancel = useAction(async () => {
    await post(`${path}/cancel`);
    await reload();
  });
  const job = data.value;
  if (job === undefined)
    return error.value === undefined ? null : <Problem error={error.value} retry={() => void reload()} />;
  const isOpen = job.status === 'queued' || job.status === 'in_progress';
  return (
    <div class="turn stack tight">
      <div class="row far">
        <span>
          <Badge tone={TONES[job.status]}>{job.status.replace('_', ' ')}</Badge> <code class="small">{id}</code>
        </span>
        {isOpen && (
          <button class="btn sm" type="button" disabled={cancel.isBusy} onClick={() => void cancel.run()}>
            {cancel.isBusy ? 'Cancelling…' : 'Cancel'}
          </button>
        )}
      </div>
      {isOpen && <progress max={100} value={job.progress} aria-label={`Progress of ${id}`} />}
      {job.status === 'completed' && (
        <>
          <video class="made" controls src={`${path}/content`} aria-label="The video" />
          <p class="small quiet">
            {job.seconds} s of video, made in {duration((job.completed_at ?? 0) - job.created_at)}, cost ${job.cost}.
            The file is kept for 24 hours.
          </p>
        </>
      )}
      {job.error !== null && (
        <Note tone="bad">
          {job.error.message} <code>{job.error.code}</code>
        </Note>
      )}
      {cancel.error !== undefined && <Problem error={cancel.error} />}
    </div>
  );
}
