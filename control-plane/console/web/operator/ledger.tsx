// The ledger: the result of the last proof, a button for a new proof, and a search over transfers.
import { useState } from 'preact/hooks';
import { post } from '../core/api.ts';
import { serviceNow } from '../core/clock.ts';
import { useLiveList, useResource } from '../core/data.ts';
import { quoted, time } from '../core/format.ts';
import { SameAs } from '../parts/command.tsx';
import { Field, useAction } from '../parts/forms.tsx';
import { Card, Empty, Figures, Head, Note, Problem } from '../parts/layout.tsx';
import { LiveTable } from '../parts/table.tsx';
import { factColumns } from './facts.tsx';
import { type Row, textOf } from './verbs.ts';

const PATH = '/admin/v1/transfers';
const COLUMNS = [
  'transfer_id',
  'amount',
  'posted_at',
  'kind',
  'debit_account',
  'credit_account',
  'subject_id',
  'evidence',
];
const REREAD_MS = 60_000;
const DAY_MS = 86_400_000;

interface Proof {
  faults: number;
  new_proven_at: string | null;
  whole_proven_at: string | null;
}

export function Ledger() {
  return (
    <>
      <Head title="Ledger" same={{ cli: 'svc-control-plane ledger show', curl: { path: '/admin/v1/ledger' } }} />
      <Proven />
      <Search />
    </>
  );
}

function Proven() {
  const { data, error, reload } = useResource<Proof>('/admin/v1/ledger', { everyMs: REREAD_MS });
  const [verdict, setVerdict] = useState<{ faults: readonly string[] }>();
  const action = useAction(async () => {
    setVerdict(await post<{ faults: readonly string[] }>('/admin/v1/ledger/verify'));
    await reload();
  });
  const proof = data.value;
  const timeOf = (at: string | null) => (at === null ? 'not yet' : `${time(at)} UTC`);
  return (
    <>
      {error.value !== undefined && <Problem error={error.value} retry={() => void reload()} />}
      {proof !== undefined && (
        <Figures
          figures={[
            {
              label: 'Last proof',
              value: proof.faults === 0 ? 'The books agree' : `${proof.faults} faults`,
              small: 'the alarm svc_ledger_faults',
              tone: proof.faults === 0 ? '' : 'bad',
            },
            { label: 'What was new', value: timeOf(proof.new_proven_at), small: 'proven each hour' },
            { label: 'Everything', value: timeOf(proof.whole_proven_at), small: 'proven each night' },
          ]}
        />
      )}
      <SameAs cli="svc-control-plane ledger verify" curl={{ method: 'POST', path: '/admin/v1/ledger/verify' }} />
      <div class="row">
        <button class="btn pri" type="button" disabled={action.isBusy} onClick={() => void action.run()}>
          {action.isBusy ? 'Proving…' : 'Prove everything now'}
        </button>
      </div>
      {action.error !== undefined && <Problem error={action.error} />}
      {verdict !== undefined && <Verdict faults={verdict.faults} />}
    </>
  );
}

function Verdict({ faults }: { faults: readonly string[] }) {
  if (faults.length === 0) {
    return (
      <Note tone="plain">
        <span role="status">The books agree: no fault was found.</span>
      </Note>
    );
  }
  return (
    <Note tone="bad">
      <p>{faults.length} faults were found. Stop payouts until they are explained.</p>
      <ul>
        {faults.map((fault) => (
          <li key={fault}>{fault}</li>
        ))}
      </ul>
    </Note>
  );
}

interface Wanted {
  org_id: string;
  subject_id: string;
  kind: string;
  from: string;
  to: string;
}

/** The option of the command for each member of the query. */
const OPTIONS: Record<keyof Wanted, string> = {
  org_id: '--org',
  subject_id: '--subject',
  kind: '--kind',
  from: '--from',
  to: '--to',
};

/** The time that is searched from or to. A text with only a day means the first moment of that day in UTC. */
const momentOf = (text: string): string => (/^\d{4}-\d{2}-\d{2}$/.test(text) ? `${text}T00:00:00Z` : text);
const dayOf = (ms: number): string => new Date(ms).toISOString().slice(0, 10);

function Search() {
  const [fields, setFields] = useState<Wanted>(atFirst);
  const [wanted, setWanted] = useState(fields);
  const field = (name: keyof Wanted, label: string, hint?: string) => (
    <Field
      label={label}
      value={fields[name]}
      {...(hint !== undefined && { hint })}
      onValue={(text) => setFields({ ...fields, [name]: text.trim() })}
    />
  );
  const search = (event: Event): void => {
    event.preventDefault();
    setWanted(fields);
  };
  return (
    <Card title="Transfers" note="in the order of posting, without those of the last minute">
      <form class="pad stack" role="search" aria-label="Transfers" onSubmit={search}>
        <div class="grid">
          {field('org_id', 'Organisation')}
          {field('subject_id', 'Instance, receipt, job, deposit or payout')}
          {field('kind', 'Kind', 'With an organisation or a subject.')}
          {field('from', 'From', 'A day, or a time in UTC.')}
          {field('to', 'To')}
        </div>
        <div class="row">
          <button class="btn" type="submit">
            Search
          </button>
        </div>
      </form>
      <Found key={JSON.stringify(wanted)} wanted={wanted} />
    </Card>
  );
}

/** The search when the screen opens. A link, e.g. on the page of a deposit, may name it in the address. Then the time is not limited. */
function atFirst(): Wanted {
  const query = new URLSearchParams(location.search);
  const [orgId, subjectId] = [query.get('org_id') ?? '', query.get('subject_id') ?? ''];
  const days = orgId === '' && subjectId === '' ? 1 : 365;
  return {
    org_id: orgId,
    subject_id: subjectId,
    kind: '',
    from: dayOf(serviceNow() - days * DAY_MS),
    to: dayOf(serviceNow() + DAY_MS),
  };
}

function Found({ wanted }: { wanted: Wanted }) {
  const given = (Object.entries(wanted) as [keyof Wanted, string][]).filter(([, text]) => text !== '');
  const query = new URLSearchParams(
    given.map(([name, text]) => [name, name === 'from' || name === 'to' ? momentOf(text) : text]),
  ).toString();
  const path = `${PATH}?limit=100&${query}`;
  const list = useLiveList<Row>({ path, idOf: (row) => textOf(row['transfer_id']) });
  const cli = `svc-control-plane admin export ${given.map(([name, text]) => `${OPTIONS[name]} ${quoted(text)}`).join(' ')}`;
  return (
    <div class="pad stack">
      <SameAs cli={cli} curl={{ path }} />
      <div class="row">
        <a class="btn" href={`${PATH}?${query}&format=csv`} download="transfers.csv">
          Download CSV
        </a>
      </div>
      <LiveTable
        caption="Transfers found"
        list={list}
        columns={factColumns(COLUMNS)}
        empty={
          <Empty title="No such transfer" cli={cli}>
            Nothing that fits was posted in this time.
          </Empty>
        }
      />
    </div>
  );
}
