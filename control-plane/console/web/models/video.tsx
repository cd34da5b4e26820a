// A video from a prompt: a job that is followed until its film can be seen.
import { useState } from 'preact/hooks';
import type { Model } from '../../../../shared/api/model.ts';
import type { VideoJob } from '../../../../shared/api/videos.ts';
import { post } from '../core/api.ts';
import { useResource } from '../core/data.ts';
import { quoted, SameAs } from '../parts/command.tsx';
import { Form, TextField, useAction } from '../parts/forms.tsx';
import { Badge, Card, Note, Problem, type Tone } from '../parts/layout.tsx';
import { membersOf, ParameterFields, type Values } from './parameters.tsx';
import { pricesOf } from './prices.ts';

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
  const parameters = model.parameters ?? [];
  const [prompt, setPrompt] = useState('');
  const [values, setValues] = useState<Values>({});
  const [id, setId] = useState<string>();
  const body = { model: model.id, prompt, ...membersOf(parameters, values) };
  const action = useAction(async () => setId((await post<VideoJob>('/v1/videos', body)).id));
  return (
    <Card
      title="Playground"
      note={<code>{model.id}</code>}
      footer={
        prompt.trim() !== '' && (
          <SameAs
            isLong
            cli={`svc api POST /videos --body ${quoted(JSON.stringify(body))}`}
            curl={{ method: 'POST', path: '/v1/videos', body }}
          />
        )
      }
    >
      {id !== undefined && <Job key={id} id={id} />}
      <div class="pad">
        <Form action={action} submit="Make the video" busy="Asking…" isDisabled={prompt.trim() === ''}>
          <TextField label="Prompt" value={prompt} onValue={setPrompt} rule={action.ruleOf('prompt')} />
          <ParameterFields parameters={parameters} values={values} onValues={setValues} action={action} />
          <p class="small quiet">{pricesOf(model).join(', ')}</p>
        </Form>
      </div>
    </Card>
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
            {job.seconds} s, cost ${job.cost}. The file is kept for 24 hours.
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
