// A video from a prompt. The screen follows the job until the video can be shown, and lists the videos that were made before.
import { useMemo, useState } from 'preact/hooks';
import type { Model } from '../../../../shared/api/model.ts';
import type { VideoJob } from '../../../../shared/api/videos.ts';
import { post } from '../core/api.ts';
import { useResource } from '../core/data.ts';
import { duration } from '../core/format.ts';
import { openSameKey } from '../core/same-key.ts';
import { Note, Problem } from '../parts/layout.tsx';
import { type PromptBody, PromptCard } from './prompt-card.tsx';
import { CancelVideo, isOpen, VideoStatus, Videos } from './videos.tsx';

const REREAD_MS = 3_000;

export function Video({ model }: { model: Model }) {
  const [id, setId] = useState<string>();
  const withSameKey = useMemo(openSameKey, []);
  const ask = async (body: PromptBody): Promise<void> => {
    const made = await withSameKey(body, (options) => post<VideoJob>('/v1/videos', body, options));
    setId(made.id);
  };
  const words = { path: '/videos', submit: 'Make the video', busy: 'Asking…' };
  return (
    <div class="stack">
      <PromptCard model={model} parameters={model.parameters ?? []} {...words} ask={ask}>
        {id !== undefined && <Job key={id} id={id} />}
      </PromptCard>
      <Videos modelId={model.id} show={setId} />
    </div>
  );
}

function Job({ id }: { id: string }) {
  const path = `/v1/videos/${id}`;
  const { data, error, reload } = useResource<VideoJob>(path, { on: [{ type: 'video', id }], everyMs: REREAD_MS });
  const job = data.value;
  if (job === undefined)
    return error.value === undefined ? null : <Problem error={error.value} retry={() => void reload()} />;
  return (
    <div class="turn stack tight">
      <div class="row far">
        <code class="small">{id}</code>
        {isOpen(job) && <CancelVideo id={id} done={reload} />}
      </div>
      <VideoStatus job={job} />
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
    </div>
  );
}
