// Models: the servers that answer their requests, and the tiers that run on the fleet with their replicas and limits.
import { useState } from 'preact/hooks';
import { post } from '../core/api.ts';
import { useResource } from '../core/data.ts';
import { quoted } from '../core/format.ts';
import type { Resource } from '../core/reading.ts';
import { useTyped } from '../core/typed.ts';
import { SameAs } from '../parts/command.tsx';
import { Field, Form, useAction } from '../parts/forms.tsx';
import { Badge, Card, Empty, Head, Problem } from '../parts/layout.tsx';
import { type Column, RowsTable } from '../parts/table.tsx';
import { Decisions } from './decision.tsx';
import { FactsOf, FactsTable, factColumns } from './facts.tsx';
import { type Row, textOf, type Verb } from './verbs.ts';

const PATH = '/admin/v1/models';
const COMMAND = 'svc-control-plane admin model';
/** The tiers are read with this period, because the control plane starts and stops replicas by itself. */
const REREAD_MS = 5_000;

const TIER = ['ready', 'starting', 'open_requests', 'waiting_requests', 'min_replicas', 'max_replicas', 'gpus'];
const REPLICA = [
  'replica_id',
  'state',
  'open_requests',
  'machine_id',
  'ready_at',
  'not_ready_because',
  'ended_because',
];

const DRAIN: Verb = {
  verb: 'drain',
  says: 'It answers its last requests and ends. Another one starts if the limits want it.',
  fits: ({ state }) => state === 'starting' || state === 'ready',
};

interface Listed {
  data: readonly Row[];
}

export function Tiers() {
  const tiers = useResource<Listed>(PATH, { everyMs: REREAD_MS });
  const [chosen, setChosen] = useState<string>();
  const rows = tiers.data.value?.data ?? [];
  const shown = rows.find((row) => row['model'] === chosen) ?? rows[0];
  return (
    <>
      <Head title="Models" same={{ cli: `${COMMAND} list`, curl: { path: PATH } }} />
      <Upstreams />
      {tiers.error.value !== undefined && <Problem error={tiers.error.value} retry={() => void tiers.reload()} />}
      {tiers.data.value !== undefined && <TierList rows={rows} choose={setChosen} />}
      {shown !== undefined && <Tier key={textOf(shown['model'])} tier={shown} changed={tiers.reload} />}
    </>
  );
}

function TierList({ rows, choose }: { rows: readonly Row[]; choose(model: string): void }) {
  const name: Column<Row> = {
    title: 'Tier',
    cell: (row) => (
      <button class="btn sm" type="button" onClick={() => choose(textOf(row['model']))}>
        {textOf(row['model'])}
      </button>
    ),
  };
  const state: Column<Row> = { title: 'State', cell: (row) => <TierState row={row} /> };
  const more = factColumns(TIER).map((column) => ({ ...column, class: 'w' }));
  return (
    <Card title="Tiers on the fleet">
      {rows.length === 0 ? (
        <Empty title="Nothing here" cli={`${COMMAND} list`}>
          No model of the file of models has a deployment.
        </Empty>
      ) : (
        <RowsTable caption="Tiers on the fleet" rows={rows} columns={[name, state, ...more]} />
      )}
    </Card>
  );
}

function TierState({ row }: { row: Row }) {
  const [obstacle, failed] = [textOf(row['cannot_run_because']), Number(row['failed_starts'])];
  if (obstacle !== '') {
    return (
      <>
        <Badge tone="bad">cannot run</Badge>
        <small>{obstacle}</small>
      </>
    );
  }
  if (failed > 0) {
    return (
      <>
        <Badge tone="warn">{failed} failed starts</Badge>
        <small>{textOf(row['last_failure'])}</small>
      </>
    );
  }
  return Number(row['ready']) > 0 ? <Badge tone="ok">answers</Badge> : <span class="dim">sleeps</span>;
}

function Tier({ tier, changed }: { tier: Row; changed(): Promise<void> }) {
  const model = textOf(tier['model']);
  const path = `${PATH}/replicas?model=${encodeURIComponent(model)}`;
  const replicas = useResource<Listed>(path, { everyMs: REREAD_MS });
  return (
    <>
      <Replicas model={model} path={path} replicas={replicas} />
      <div class="split even">
        <Scale model={model} tier={tier} changed={changed} />
        <Card title={model}>
          <FactsOf row={tier} />
        </Card>
      </div>
    </>
  );
}

interface ReplicasProps {
  model: string;
  path: string;
  replicas: Resource<Listed>;
}

function Replicas({ model, path, replicas: { data, error, reload } }: ReplicasProps) {
  const idOf = (row: Row): string => textOf(row['replica_id']);
  const drain: Column<Row> = {
    title: 'Decide',
    cell: (row) => (
      <Decisions
        path={`${PATH}/replicas`}
        command={COMMAND}
        verbs={[DRAIN]}
        row={row}
        id={idOf(row)}
        decided={reload}
      />
    ),
  };
  return (
    <Card
      title="Replicas"
      note="those that live, and the last 50"
      footer={<SameAs cli={`${COMMAND} replicas ${quoted(model)}`} curl={{ path }} />}
    >
      {error.value !== undefined && <Problem error={error.value} retry={() => void reload()} />}
      {data.value !== undefined && (
        <FactsTable caption="Replicas" rows={data.value.data} columns={REPLICA} decide={drain} idOf={idOf}>
          No replica has run yet.
        </FactsTable>
      )}
    </Card>
  );
}

interface ScaleProps {
  model: string;
  tier: Row;
  changed(): Promise<void>;
}

function Scale({ model, tier, changed }: ScaleProps) {
  const [min, setMin] = useTyped(`replicas-min/${model}`, textOf(tier['min_replicas']));
  const [max, setMax] = useTyped(`replicas-max/${model}`, textOf(tier['max_replicas']));
  const body = { model, min_replicas: min === '' ? null : Number(min), max_replicas: max === '' ? null : Number(max) };
  const action = useAction(async () => {
    await post(`${PATH}/scale`, body);
    await changed();
  });
  const options = `${min === '' ? '' : ` --min ${quoted(min)}`}${max === '' ? '' : ` --max ${quoted(max)}`}`;
  return (
    <Card title="Limits" note="in place of those of the file of models">
      <div class="pad stack">
        <Form action={action} submit="Scale" busy="Scaling…">
          <div class="grid">
            <Field
              label="Replicas at least"
              inputMode="numeric"
              value={min}
              onValue={setMin}
              rule={action.ruleOf('min_replicas')}
            />
            <Field
              label="Replicas at most"
              inputMode="numeric"
              value={max}
              onValue={setMax}
              hint="Empty: the limit of the file."
              rule={action.ruleOf('max_replicas')}
            />
          </div>
        </Form>
        <SameAs
          cli={`${COMMAND} scale ${quoted(model)}${options}`}
          curl={{ method: 'POST', path: `${PATH}/scale`, body }}
        />
      </div>
    </Card>
  );
}

/** The model servers. Each control plane checks them by itself, so the states are those of the control plane that answers. */
function Upstreams() {
  const path = '/admin/v1/upstreams';
  const { data, error, reload } = useResource<Listed>(path, { everyMs: REREAD_MS });
  const columns: readonly Column<Row>[] = [
    { title: 'Server', cell: (row) => <span class="brk">{textOf(row['upstream'])}</span> },
    {
      title: 'State',
      cell: (row) =>
        row['is_out'] === true ? <Badge tone="bad">gets no requests</Badge> : <Badge tone="ok">answers</Badge>,
    },
    { title: 'Model there', class: 'w', cell: (row) => <code>{textOf(row['model'])}</code> },
  ];
  return (
    <Card
      title="Servers"
      note="as the control plane that answers has found them"
      footer={<SameAs cli={`${COMMAND} upstreams`} curl={{ path }} />}
    >
      {error.value !== undefined && <Problem error={error.value} retry={() => void reload()} />}
      {data.value !== undefined &&
        (data.value.data.length === 0 ? (
          <p class="pad quiet">No server was asked or checked since the start.</p>
        ) : (
          <RowsTable caption="Servers" rows={data.value.data} columns={columns} />
        ))}
    </Card>
  );
}
