// The playground of models that make something from a prompt: its fields, the price, and the same request on a command line.
import type { ComponentChildren } from 'preact';
import type { Model } from '../../../../shared/api/model.ts';
import { quoted } from '../core/format.ts';
import { useTyped } from '../core/typed.ts';
import { SameAs } from '../parts/command.tsx';
import { Form, TextField, useAction } from '../parts/forms.tsx';
import { Card } from '../parts/layout.tsx';
import { membersOf, ParameterFields, type Values } from './parameters.tsx';
import { pricesOf } from './prices.ts';

export interface PromptBody extends Record<string, unknown> {
  model: string;
  prompt: string;
}

interface PromptCardProps {
  model: Model;
  /** Parameters that the request may have in addition to the prompt. */
  parameters: NonNullable<Model['parameters']>;
  /** The path of the request, below /v1. */
  path: string;
  submit: string;
  busy: string;
  /** Sends the request. @throws ApiError */
  ask(body: PromptBody): Promise<void>;
  /** The results, which are shown below the form. */
  children: ComponentChildren;
}

const NO_VALUES: Values = {};

export function PromptCard({ model, parameters, path, submit, busy, ask, children }: PromptCardProps) {
  const [prompt, setPrompt] = useTyped(`prompt/${model.id}`, '');
  const [values, setValues] = useTyped(`parameters/${model.id}`, NO_VALUES);
  const body: PromptBody = { model: model.id, prompt, ...membersOf(parameters, values) };
  const action = useAction(() => ask(body));
  const isEmpty = prompt.trim() === '';
  return (
    <Card
      title="Playground"
      note={<code>{model.id}</code>}
      footer={
        !isEmpty && (
          <SameAs
            isLong
            cli={`svc api POST ${path} --body ${quoted(JSON.stringify(body))}`}
            curl={{ method: 'POST', path: `/v1${path}`, body }}
          />
        )
      }
    >
      {children}
      <div class="pad">
        <Form action={action} submit={submit} busy={busy} isDisabled={isEmpty}>
          <TextField label="Prompt" value={prompt} onValue={setPrompt} rule={action.ruleOf('prompt')} />
          <ParameterFields parameters={parameters} values={values} onValues={setValues} action={action} />
          <p class="small quiet">{pricesOf(model).join(', ')}</p>
        </Form>
      </div>
    </Card>
  );
}
