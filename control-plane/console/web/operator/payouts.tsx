// Payouts of all suppliers. The operator exports the due payouts, sends them outside of this service, and enters each as sent or failed.
import { useEffect, useState } from 'preact/hooks';
import type { Page } from '../../../../shared/api/page.ts';
import { post } from '../core/api.ts';
import { serviceNow } from '../core/clock.ts';
import { plural, quoted } from '../core/format.ts';
import { useTyped } from '../core/typed.ts';
import { SameAs } from '../parts/command.tsx';
import { Field, Form, useAction } from '../parts/forms.tsx';
import { Card, Note } from '../parts/layout.tsx';
import { FactsTable } from './facts.tsx';
import { type Listing, ListingView } from './listing.tsx';
import { Make } from './making.tsx';
import { PAYMENT } from './makings.ts';
import { REASON, type Row } from './verbs.ts';

const PATH = '/admin/v1/payouts';
const COMMAND = 'svc-control-plane admin payout';
const COLUMNS = ['payout_id', 'amount', 'asset', 'chain', 'address', 'supplier_id'];

const LISTING: Listing = {
  title: 'Payouts',
  path: `${PATH}?limit=100`,
  cli: `${COMMAND} list`,
  id: 'payout_id',
  columns: ['payout_id', 'status', 'amount_cents', 'supplier_id', 'chain', 'reference', 'reason', 'batch'],
  what: 'What suppliers are paid and were paid. Payouts become due by themselves.',
  filters: [
    ['Due', 'state=due', '--state due'],
    ['In flight', 'state=in_flight', '--state in_flight'],
    ['Paid', 'state=paid', '--state paid'],
    ['Failed', 'state=failed', '--state failed'],
    ['All', '', ''],
  ],
  verbs: [
    {
      verb: 'sent',
      says: 'The payout has left with this transaction, and stays paid.',
      takes: [{ field: 'reference', option: 'reference', label: 'Transaction' }],
      fits: ({ status }) => status === 'in_flight',
    },
    {
      verb: 'failed',
      says: 'Nothing has left and nothing will: the money is owed again. If you do not know, look at the chain first. The supplier reads the reason.',
      takes: [REASON],
      fits: ({ status }) => status === 'in_flight' || status === 'due',
    },
  ],
};

export function Payouts() {
  const actions = (reload: () => Promise<void>) => <Make making={PAYMENT} made={reload} />;
  return <ListingView listing={LISTING} above={(reload) => <Export exported={reload} />} actions={actions} />;
}

function Export({ exported }: { exported(): Promise<void> }) {
  const [batch, setBatch] = useTyped('payout-batch', new Date(serviceNow()).toISOString().slice(0, 10));
  const [made, setMade] = useState<{ batch: string; page: Page<Row> }>();
  const action = useAction(async () => {
    setMade({ batch, page: await post<Page<Row>>(`${PATH}/export`, { batch }) });
    await exported();
  });
  return (
    <Card title="Export what is due" note="no key of a wallet is on the server: you send the money">
      <div class="pad stack">
        <p class="small dim">
          All that is due and may leave goes in flight, and you get a list of payments. The same batch again gives the
          same list, without what has ended. Compare it with what your wallet has sent before you send a list again.
        </p>
        <Form action={action} submit="Export" busy="Exporting…">
          <Field
            label="Batch"
            required
            maxLength={64}
            value={batch}
            onValue={setBatch}
            hint="Your name for the list."
            rule={action.ruleOf('batch')}
          />
        </Form>
        <SameAs
          cli={`${COMMAND} export --batch ${quoted(batch)} --json`}
          curl={{ method: 'POST', path: `${PATH}/export`, body: { batch } }}
        />
        {made !== undefined && <Made {...made} />}
      </div>
    </Card>
  );
}

/** The batch that was made. Its file has the same bytes as the output of the command. */
function Made({ batch, page }: { batch: string; page: Page<Row> }) {
  const url = useFile(`${JSON.stringify(page)}\n`, 'application/json');
  return (
    <>
      <Note
        tone="plain"
        action={
          <a class="btn" href={url} download={`payouts-${batch}.json`}>
            Download the list
          </a>
        }
      >
        {plural(page.data.length, 'payout')} of the batch {batch} {page.data.length === 1 ? 'is' : 'are'} in flight.
      </Note>
      <FactsTable caption="Payments to send" rows={page.data} columns={COLUMNS}>
        Nothing was due that may leave.
      </FactsTable>
    </>
  );
}

/** The address of a file with this text. It is valid while the component is shown; undefined before the first drawing. */
function useFile(text: string, type: string): string | undefined {
  const [url, setUrl] = useState<string>();
  useEffect(() => {
    const made = URL.createObjectURL(new Blob([text], { type }));
    setUrl(made);
    return () => URL.revokeObjectURL(made);
  }, [text, type]);
  return url;
}
