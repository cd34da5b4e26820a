// One deposit for operators: the requested amount, the tokens that arrived, the changes of its status, and the decisions about it.
import { Link } from 'wouter-preact';
import { useResource } from '../core/data.ts';
import type { ScreenProps } from '../core/screen.ts';
import { Card, Head, Problem } from '../parts/layout.tsx';
import { Decisions } from './decision.tsx';
import { DEPOSIT_VERBS, DEPOSITS } from './deposit-queue.tsx';
import { FactsOf, FactsTable } from './facts.tsx';
import { type Row, textOf } from './verbs.ts';

const TRANSFER = ['tx_hash', 'amount', 'asset', 'from', 'block', 'at', 'status', 'booked'];
const CHANGE = ['at', 'status', 'amount', 'credited_cents'];

/** The deposit is read with this period, because its chain goes on while the page is open. */
const REREAD_MS = 15_000;

interface Shown {
  deposit: Row;
  transfers: readonly Row[];
  history: readonly Row[];
}

export function QueuedDeposit({ params: { id = '' } }: ScreenProps) {
  const path = `${DEPOSITS.path}/${encodeURIComponent(id)}`;
  const { data, error, reload } = useResource<Shown>(path, { everyMs: REREAD_MS });
  const shown = data.value;
  return (
    <>
      <Head
        title={shown === undefined ? 'Deposit' : `Deposit of ${textOf(shown.deposit['amount'])}`}
        crumb={
          <>
            <Link href="/console/operate/deposit-queue">Deposit queue</Link> / <code>{id}</code>
          </>
        }
        same={{ cli: `${DEPOSITS.command} show ${id}`, curl: { path } }}
      >
        {shown !== undefined && (
          <Decisions {...DEPOSITS} verbs={DEPOSIT_VERBS} row={shown.deposit} id={id} decided={reload} />
        )}
      </Head>
      {error.value !== undefined && <Problem error={error.value} retry={() => void reload()} />}
      {shown !== undefined && (
        <>
          <Card
            title="Deposit"
            actions={<Link href={`/console/operate/ledger?subject_id=${encodeURIComponent(id)}`}>Its postings</Link>}
          >
            <FactsOf row={shown.deposit} />
          </Card>
          <Card title="Transfers on its chain">
            <FactsTable caption="Transfers on its chain" rows={shown.transfers} columns={TRANSFER}>
              Nothing was seen at its address.
            </FactsTable>
          </Card>
          <Card title="History" note="the newest 100 changes of its status">
            <FactsTable caption="History" rows={shown.history} columns={CHANGE}>
              Its status has not changed, or its events are forgotten.
            </FactsTable>
          </Card>
        </>
      )}
    </>
  );
}
