// The list of models with their prices, and a playground for the models that can be called.
import { useState } from 'preact/hooks';
import type { Modality, Model } from '../../../../shared/api/model.ts';
import { useResource } from '../core/data.ts';
import { count } from '../core/format.ts';
import { may } from '../core/session.ts';
import { useTyped } from '../core/typed.ts';
import { Card, Empty, Head, Problem, Tag } from '../parts/layout.tsx';
import { Segments } from '../parts/choosing.tsx';
import { type Column, RowsTable } from '../parts/table.tsx';
import { Chat } from './chat.tsx';
import { Image } from './image.tsx';
import { hasEconomy, pricesOf, wakesIn } from './prices.ts';
import { Video } from './video.tsx';

type Show = Modality | 'all';
const SHOWN: readonly (readonly [Show, string])[] = [
  ['all', 'All'],
  ['chat', 'Chat'],
  ['image', 'Image'],
  ['video', 'Video'],
  ['embedding', 'Embedding'],
];

export function Models() {
  const { data, error, reload } = useResource<{ data: Model[] }>('/v1/models');
  const [chosen, setChosen] = useTyped<string | undefined>('model', undefined);
  const models = data.value?.data;
  const tried = models?.filter(canTry);
  const model =
    tried?.find(({ id }) => id === chosen) ?? tried?.find(({ modality }) => modality === 'chat') ?? tried?.[0];
  return (
    <>
      <Head title="Models and playground" same={{ cli: 'svc model list', curl: { path: '/v1/models' } }} />
      {error.value !== undefined && <Problem error={error.value} retry={() => void reload()} />}
      {models === undefined && error.value === undefined && <div class="card pad quiet">Reading…</div>}
      {models !== undefined && (
        <div class="split even">
          <Catalog models={models} choose={setChosen} />
          {model !== undefined && may('serverless:write') && <Playground key={model.id} model={model} />}
        </div>
      )}
    </>
  );
}

function canTry({ status, modality }: Model): boolean {
  return status !== 'coming_soon' && modality !== 'embedding';
}

function Playground({ model }: { model: Model }) {
  switch (model.modality) {
    case 'chat':
      return <Chat model={model} />;
    case 'image':
      return <Image model={model} />;
    case 'video':
      return <Video model={model} />;
    case 'embedding':
      return null;
  }
}

function Catalog({ models, choose }: { models: readonly Model[]; choose(id: string): void }) {
  const [show, setShow] = useState<Show>('all');
  const shown = models.filter(({ modality }) => show === 'all' || modality === show);
  const columns: readonly Column<Model>[] = [
    { title: 'Model', cell: (model) => <Name model={model} choose={choose} /> },
    {
      title: 'Context',
      class: 'num w',
      cell: ({ context_length: tokens }) => (tokens === undefined ? '–' : count(tokens)),
    },
    { title: 'Price', class: 'num', cell: (model) => <Price model={model} /> },
  ];
  return (
    <Card
      title="Catalog"
      actions={<Segments label="Modality" value={show} options={SHOWN} onValue={(next) => setShow(next)} />}
      footer={
        models.some(hasEconomy) && (
          <>
            Tokens are priced by the million. <code>:economy</code> behind the id of a chat model selects its economy
            tier, which may have to wake up first.
          </>
        )
      }
    >
      {shown.length === 0 ? (
        <Empty title="No model">The operator offers none of this kind.</Empty>
      ) : (
        <RowsTable caption="Models" rows={shown} columns={columns} />
      )}
    </Card>
  );
}

function Name({ model, choose }: { model: Model; choose(id: string): void }) {
  const { id, modality, status, fine_tunable: isTunable, cold_start_seconds: wakes } = model;
  const facts = [
    modality,
    ...(isTunable === true ? ['can be fine-tuned'] : []),
    ...(wakes === undefined ? [] : [wakesIn(wakes)]),
  ];
  return (
    <>
      {canTry(model) ? (
        <button class="btn sm" type="button" aria-label={`Try ${id}`} onClick={() => choose(id)}>
          <span class="brk">{id}</span>
        </button>
      ) : (
        <span class="brk">{id}</span>
      )}
      <br />
      <small class="quiet brk">{facts.join(', ')}</small>
      {status !== 'active' && (
        <>
          {' '}
          <Tag tone={status === 'deprecated' ? 'warn' : ''}>{status.replace('_', ' ')}</Tag>
        </>
      )}
    </>
  );
}

function Price({ model }: { model: Model }) {
  const prices = pricesOf(model);
  const economy = hasEconomy(model) ? pricesOf(model, 'economy') : [];
  return (
    <>
      {prices.length === 0 ? '–' : prices.join(', ')}
      {economy.length > 0 && <small>economy {economy.join(', ')}</small>}
    </>
  );
}
