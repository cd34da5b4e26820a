// Images from a prompt, with what they cost.
import { useState } from 'preact/hooks';
import type { ImagesResponse } from '../../../../shared/api/images.ts';
import type { Model } from '../../../../shared/api/model.ts';
import { send } from '../core/api.ts';
import { duration, plural } from '../core/format.ts';
import { may } from '../core/session.ts';
import { quoted, SameAs } from '../parts/command.tsx';
import { Form, TextField, useAction } from '../parts/forms.tsx';
import { Card } from '../parts/layout.tsx';
import { membersOf, ParameterFields, type Values } from './parameters.tsx';
import { pricesOf } from './prices.ts';
import { costText, receiptOf } from './receipts.ts';

interface Made {
  prompt: string;
  images: readonly string[];
  seconds: number;
  cost: string | undefined;
}

export function Image({ model }: { model: Model }) {
  // A request for images may name a size alone.
  const parameters = (model.parameters ?? []).filter(({ name }) => name === 'size');
  const [prompt, setPrompt] = useState('');
  const [values, setValues] = useState<Values>({});
  const [made, setMade] = useState<Made>();
  const body = { model: model.id, prompt, ...membersOf(parameters, values) };
  const action = useAction(async () => {
    const beganMs = performance.now();
    const response = await send('POST', '/v1/images/generations', body);
    const { data } = (await response.json()) as ImagesResponse;
    const seconds = (performance.now() - beganMs) / 1_000;
    const shown = { prompt, images: data.map((each) => each.b64_json), seconds };
    setMade({ ...shown, cost: undefined });
    const receiptId = response.headers.get('x-receipt-id');
    if (receiptId !== null && may('billing: read')) setMade({ ...shown, cost: costText(await receiptOf(receiptId)) });
  });
  return (
    <Card
      title="Playground"
      note={<code>{model.id}</code>}
      footer={
        prompt.trim() !== '' && (
          <SameAs
            isLong
            cli={`svc api POST /images/generations --body ${quoted(JSON.stringify(body))}`}
            curl={{ method: 'POST', path: '/v1/images/generations', body }}
          />
        )
      }
    >
      {made !== undefined && (
        <div class="turn stack tight">
          {made.images.map((image, index) => (
            <img key={index} class="made" src={`data:image/png;base64,${image}`} alt={made.prompt} />
          ))}
          <p class="small quiet">
            {plural(made.images.length, 'image')} in {duration(made.seconds)}, cost {made.cost ?? 'not known yet'}
          </p>
        </div>
      )}
      <div class="pad">
        <Form action={action} submit="Make the image" busy="Making…" isDisabled={prompt.trim() === ''}>
          <TextField label="Prompt" value={prompt} onValue={setPrompt} rule={action.ruleOf('prompt')} />
          <ParameterFields parameters={parameters} values={values} onValues={setValues} action={action} />
          <p class="small quiet">{pricesOf(model).join(', ')}</p>
        </Form>
      </div>
    </Card>
  );
}
