// A new fine-tuning job: the base model, the examples, and what it may cost.
import { useMemo, useState } from 'preact/hooks';
import { Link } from 'wouter-preact';
import type { FileObject } from '../../../../shared/api/file.ts';
import type { FineTuningJob, FineTuningQuote } from '../../../../shared/api/fine-tuning.ts';
import type { Model } from '../../../../shared/api/model.ts';
import { FILES_PER_ORG_MAX } from '../../../../shared/limits.ts';
import { parsed, post, send } from '../core/api.ts';
import { useReads, useResource } from '../core/data.ts';
import { bytes, quoted, shortId, time } from '../core/format.ts';
import { openSameKey } from '../core/same-key.ts';
import { useTyped } from '../core/typed.ts';
import { SameAs } from '../parts/command.tsx';
import { Field, Form, Select, useAction } from '../parts/forms.tsx';
import { Card, Note, Problem } from '../parts/layout.tsx';
import { Quotes } from './quotes.tsx';

const MS = 1_000;

type Method = 'lora' | 'qlora';
const METHODS: readonly (readonly [Method, string])[] = [
  ['lora', 'LoRA'],
  ['qlora', 'QLoRA: less memory'],
];

export function NewJob() {
  const models = useResource<{ data: Model[] }>('/v1/models?modality=chat');
  const files = useResource<{ data: FileObject[] }>(`/v1/files?limit=${FILES_PER_ORG_MAX}`);
  const bases = (models.data.value?.data ?? []).flatMap(({ fine_tune_base_model: base }) => base ?? []);
  const valid = (files.data.value?.data ?? []).filter(({ status }) => status === 'processed');
  if (models.data.value === undefined || files.data.value === undefined) {
    const error = models.error.value ?? files.error.value;
    return error === undefined ? null : <Problem error={error} />;
  }
  if (bases.length === 0) return <Note>The operator offers no model that can be fine-tuned.</Note>;
  if (valid.length === 0)
    return (
      <Note
        action={
          <Link class="btn" href="/console/files">
            Upload a file
          </Link>
        }
      >
        A job needs a file of examples that can be trained with.
      </Note>
    );
  return <JobForm bases={bases} files={valid} />;
}

function JobForm({ bases, files }: { bases: readonly string[]; files: readonly FileObject[] }) {
  const [chosenModel, setModel] = useTyped('job/model', '');
  const [chosenFile, setFile] = useTyped('job/file', '');
  const [method, setMethod] = useTyped<Method>('job/method', 'lora');
  const [budget, setBudget] = useTyped('job/budget', '');
  const [suffix, setSuffix] = useTyped('job/suffix', '');
  const model = bases.find((each) => each === chosenModel) ?? bases[0] ?? '';
  const file = (files.find(({ id }) => id === chosenFile) ?? files[0])?.id ?? '';
  const body = {
    model,
    training_file: file,
    method: { type: method },
    ...(suffix === '' ? {} : { suffix }),
    ...(budget === '' ? {} : { svc: { max_budget_usd: Number(budget) } }),
  };
  const isWrong = budget !== '' && !(Number(budget) > 0);
  const withSameKey = useMemo(openSameKey, []);
  const action = useAction(async ({ goTo }) => {
    const { id } = await withSameKey(body, (options) => post<FineTuningJob>('/v1/fine_tuning/jobs', body, options));
    goTo(`/console/fine-tuning/${id}`);
  });
  return (
    <Card title="New job">
      <div class="pad stack">
        <Form action={action} submit="Start the job" busy="Starting…" isDisabled={isWrong}>
          <div class="grid">
            <Select
              label="Base model"
              value={model}
              options={bases.map((each) => [each, each] as const)}
              onValue={setModel}
              rule={action.ruleOf('model')}
            />
            <Select
              label="Examples"
              value={file}
              options={files.map((each) => [each.id, labelOf(each)] as const)}
              onValue={setFile}
              rule={action.ruleOf('training_file')}
            />
            <Select label="Method" value={method} options={METHODS} onValue={(next) => setMethod(next)} />
            <Field
              label="Budget in dollars, optional"
              inputMode="decimal"
              value={budget}
              onValue={setBudget}
              rule={action.ruleOf('svc.max_budget_usd')}
              hint="It is held until the job ends. The job never costs more. Empty: the highest cost of the quote, at least its smallest budget."
            />
            <Field label="Name, optional" value={suffix} onValue={setSuffix} rule={action.ruleOf('suffix')} />
          </div>
          <Quote file={file} model={model} />
        </Form>
        {!isWrong && <SameAs isLong cli={lineOf(body)} curl={{ method: 'POST', path: '/v1/fine_tuning/jobs', body }} />}
      </div>
    </Card>
  );
}

/** Several files may have one name. */
function labelOf({ id, filename, bytes: size, created_at: atS }: FileObject): string {
  return `${filename}, ${bytes(size)}, ${time(new Date(atS * MS).toISOString())} UTC, …${shortId(id)}`;
}

/** What the job would cost. The quote is requested again if another file is chosen. */
function Quote({ file, model }: { file: string; model: string }) {
  const [quotes, setQuotes] = useState<readonly FineTuningQuote[]>([]);
  const { error } = useReads(
    (signal) => async () => {
      const answer = await send('POST', `/v1/files/${file}/quote`, undefined, { signal });
      setQuotes((await parsed<{ data: FineTuningQuote[] }>(answer)).data);
    },
    [file],
  );
  if (error !== undefined) return <Problem error={error} />;
  const shown = quotes.filter((quote) => quote.model === model);
  return shown.length === 0 ? null : <Quotes quotes={shown} />;
}

interface JobBody {
  model: string;
  training_file: string;
  method: { type: Method };
  suffix?: string;
  svc?: { max_budget_usd: number };
}

/** The command for the same job. */
function lineOf({ model, training_file: file, method, suffix, svc }: JobBody): string {
  const type = method.type === 'lora' ? '' : ` --method ${method.type}`;
  const budget = svc === undefined ? '' : ` --budget ${svc.max_budget_usd}`;
  const name = suffix === undefined ? '' : ` --suffix ${quoted(suffix)}`;
  return `svc job create --model ${quoted(model)} --file ${quoted(file)}${type}${budget}${name}`;
}
