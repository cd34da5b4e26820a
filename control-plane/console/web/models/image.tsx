// Images from a prompt, with what they cost.
import { useState } from 'preact/hooks';
import type { ImagesResponse } from '../../../../shared/api/images.ts';
import type { Model } from '../../../../shared/api/model.ts';
import { parsed, send } from '../core/api.ts';
import { duration, plural } from '../core/format.ts';
import { may } from '../core/session.ts';
import { type PromptBody, PromptCard } from './prompt-card.tsx';
import { costText, receiptOf } from './receipts.ts';

interface Made {
  prompt: string;
  images: readonly string[];
  seconds: number;
  cost: string | undefined;
}

export function Image({ model }: { model: Model }) {
  // The only parameter that a request for images may set is the size.
  const parameters = (model.parameters ?? []).filter(({ name }) => name === 'size');
  const [made, setMade] = useState<Made>();
  const ask = async (body: PromptBody): Promise<void> => {
    const beganMs = performance.now();
    const response = await send('POST', '/v1/images/generations', body);
    const { data } = await parsed<ImagesResponse>(response);
    const seconds = (performance.now() - beganMs) / 1_000;
    const shown = { prompt: body.prompt, images: data.map((each) => each.b64_json), seconds };
    setMade({ ...shown, cost: undefined });
    const receiptId = response.headers.get('x-receipt-id');
    if (receiptId !== null && may('billing: read')) setMade({ ...shown, cost: costText(await receiptOf(receiptId)) });
  };
  const words = { path: '/images/generations', submit: 'Make the image', busy: 'Making…' };
  return (
    <PromptCard model={model} parameters={parameters} {...words} ask={ask}>
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
    </PromptCard>
  );
}
