// What models used and cost in the last thirty days, by model or by API key.
import { useState } from 'preact/hooks';
import { Link } from 'wouter-preact';
import type { ApiKey } from '../../../../shared/api/account.ts';
import type { ReceiptTotal } from '../../../../shared/api/receipt-totals.ts';
import { dollarsFromUcents } from '../../../../shared/money.ts';
import { count, dollars } from '../core/format.ts';
import { useAllPages } from '../core/pages.ts';
import { may } from '../core/session.ts';
import { SameAs } from '../parts/command.tsx';
import { Card, Empty, Head, Note, Problem } from '../parts/layout.tsx';
import { Segments } from '../parts/choosing.tsx';
import { type Column, RowsTable } from '../parts/table.tsx';
import { type GroupBy, type ModelCost, modelCosts, sumOfCosts } from './model-cost-sums.ts';

const REREAD_MS = 60_000;

const GROUPINGS: readonly (readonly [GroupBy, string])[] = [
  ['model', 'Model'],
  ['api_key_id', 'API key'],
];

export function ModelCosts() {
  const [groupBy, setGroupBy] = useState<GroupBy>('model');
  const path = `/v1/receipts/totals?group_by=${groupBy}`;
  const { rows, isCut, error, reload } = useAllPages<ReceiptTotal>(path, REREAD_MS);
  const keys = useAllPages<ApiKey>(may('api_keys: read') ? '/v1/api-keys' : undefined, REREAD_MS).rows ?? [];
  const costs = rows === undefined ? [] : modelCosts(rows, groupBy);
  const all = sumOfCosts(costs);
  return (
    <>
      <Head title="Model costs">
        <Link class="btn" href="/console/usage">
          Bill of a month
        </Link>
      </Head>
      <Card
        title={`Last 30 days${rows === undefined ? '' : `, ${costText(all.ucents)}`}`}
        actions={<Segments label="Group" value={groupBy} options={GROUPINGS} onValue={(next) => setGroupBy(next)} />}
        footer={
          <>
            <p>A request is counted some minutes after its end.</p>
            <SameAs cli={`svc model totals --group-by ${groupBy}`} curl={{ path }} />
          </>
        }
      >
        {error !== undefined && <Problem error={error} retry={reload} />}
        {rows === undefined && error === undefined && <p class="pad quiet">Reading…</p>}
        {rows?.length === 0 && (
          <Empty title="No request to a model" cli="svc model list">
            None has ended in the last 30 days.
          </Empty>
        )}
        {isCut && <Note tone="warn">There are more rows than this page reads. Ask the API for fewer days.</Note>}
        {costs.length > 0 && <Costs costs={costs} all={all} groupBy={groupBy} keys={keys} />}
      </Card>
    </>
  );
}

interface CostsProps {
  costs: readonly ModelCost[];
  all: ModelCost;
  groupBy: GroupBy;
  keys: readonly ApiKey[];
}

function Costs({ costs, all, groupBy, keys }: CostsProps) {
  const columns: readonly Column<ModelCost>[] = [
    {
      title: groupBy === 'model' ? 'Model' : 'API key',
      cell: ({ group }) => (groupBy === 'model' ? <span class="brk">{group}</span> : <Key id={group} keys={keys} />),
    },
    { title: 'Requests', class: 'num', cell: ({ requests }) => count(requests) },
    { title: 'Prompt tokens', class: 'num w', cell: ({ promptTokens }) => count(promptTokens) },
    { title: 'Answer tokens', class: 'num w', cell: ({ completionTokens }) => count(completionTokens) },
    { title: 'Images', class: 'num w', cell: ({ images }) => count(images) },
    { title: 'Cost', class: 'num', cell: ({ ucents }) => costText(ucents) },
  ];
  return (
    <RowsTable
      caption="Cost by group"
      rows={costs}
      columns={columns}
      footer={
        <tr>
          <th scope="row">All</th>
          {columns.slice(1).map((column) => (
            <td key={column.title} class={column.class}>
              {column.cell(all)}
            </td>
          ))}
        </tr>
      }
    />
  );
}

/** A cheap model costs a fraction of a cent, which must not look like nothing. */
function costText(ucents: bigint): string {
  const isFraction = ucents > 0n && ucents < 1_000_000n;
  return dollars(dollarsFromUcents(ucents), isFraction ? 6 : 2);
}

/** Requests of the playground come with the session of a person, which has no name. */
function Key({ id, keys }: { id: string; keys: readonly ApiKey[] }) {
  const key = keys.find((each) => each.id === id);
  return (
    <>
      {key?.name ?? <span class="quiet">a session, or a key that you may not see</span>}
      <br />
      <small class="quiet brk">{key?.prefix ?? id}</small>
    </>
  );
}
