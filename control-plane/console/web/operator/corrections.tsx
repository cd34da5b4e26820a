// Corrections of a balance by an operator: a credit, a refund, or an adjustment. Each has a reason and a reference. A reference has an effect once.
import { useState } from 'preact/hooks';
import { post } from '../core/api.ts';
import { dollars, quoted } from '../core/format.ts';
import { useTyped } from '../core/typed.ts';
import { SameAs } from '../parts/command.tsx';
import { Field, Form, useAction } from '../parts/forms.tsx';
import { Card, Note } from '../parts/layout.tsx';
import { Segments } from '../parts/choosing.tsx';
import type { Row } from './verbs.ts';

type Kind = 'credit' | 'up' | 'down' | 'refund';

const KINDS: readonly (readonly [Kind, string])[] = [
  ['credit', 'Credit'],
  ['up', 'Adjust up'],
  ['down', 'Adjust down'],
  ['refund', 'Refund'],
];
const SAYS: Record<Kind, string> = {
  credit: 'The organisation gets something from our revenue.',
  up: 'The balance was too low by mistake.',
  down: 'The balance was too high by mistake. At most what is available is taken.',
  refund:
    'A rental, a receipt or a video is given back, from supplier and fee as it was split. Without an amount: all that was not refunded yet.',
};
const BASE = '/admin/v1/corrections';
const ADMIN = 'svc-control-plane admin';

interface Given {
  kind: Kind;
  orgId: string;
  amount: string;
  subjectId: string;
  reason: string;
  reference: string;
  /** The checkbox. Adjust down: write off what the balance does not cover. Refund: the platform pays all of it, the supplier keeps its part. */
  isMarked: boolean;
}

const NOTHING = { amount: '', subjectId: '', reason: '', reference: '', isMarked: false };

interface CorrectionsProps {
  orgId: string;
  corrected(): Promise<void>;
}

export function Corrections({ orgId, corrected }: CorrectionsProps) {
  const [given, setGiven] = useTyped<Given>(`correction/${orgId}`, { ...NOTHING, kind: 'credit', orgId });
  const [made, setMade] = useState<Row>();
  const { kind, isMarked } = given;
  const set = (change: Partial<Given>): void => setGiven({ ...given, ...change });
  const { path, body } = requestOf(given);
  const shown = exampleOf(given);
  const action = useAction(async () => {
    setMade(undefined);
    setMade(await post<Row>(path, body));
    await corrected();
  });
  const field = (name: 'amount' | 'subjectId' | 'reason' | 'reference', label: string, rest: object = {}) => (
    <Field
      {...rest}
      label={label}
      value={given[name]}
      onValue={(text) => set({ [name]: text })}
      rule={action.ruleOf(name === 'subjectId' ? 'subject_id' : name)}
    />
  );
  return (
    <Card title="Correct the balance">
      <div class="pad stack">
        <Segments label="Kind" value={kind} options={KINDS} onValue={(next) => set({ kind: next, isMarked: false })} />
        <p class="small dim">{SAYS[kind]} This stands in the audit journal under your address.</p>
        <Form action={action} submit="Post the correction" busy="Posting…">
          {kind === 'refund' && field('subjectId', 'Instance, receipt or video', { required: true })}
          {field('amount', 'Amount in dollars', { required: kind !== 'refund', inputMode: 'decimal' })}
          {field('reason', 'Reason', { required: true, hint: 'The customer reads it on the bill.' })}
          {field('reference', 'Reference', { required: true, hint: 'A second correction under it has no effect.' })}
          {(kind === 'down' || kind === 'refund') && (
            <label class="check">
              <input
                type="checkbox"
                checked={isMarked}
                onChange={(event) => set({ isMarked: event.currentTarget.checked })}
              />
              {kind === 'down' ? 'Write off what the balance does not cover' : 'The supplier keeps its part'}
            </label>
          )}
        </Form>
        {made !== undefined && <Made made={made} />}
        <SameAs cli={lineOf(shown)} curl={{ method: 'POST', path, body: requestOf(shown).body }} />
      </div>
    </Card>
  );
}

function Made({ made }: { made: Row }) {
  const amount = String(made['amount']);
  const lost = Number(made['bad_debt']);
  return (
    <Note tone="plain">
      <span role="status">
        Posted {dollars(amount)} as <code>{String(made['id'])}</code>.
        {lost > 0 && ` ${dollars(lost)} were written off.`}
      </span>
    </Note>
  );
}

/** The values for the command lines: an example stands for each field that is still empty. */
function exampleOf(given: Given): Given {
  const { kind, amount, subjectId, reason, reference } = given;
  return {
    ...given,
    amount: kind === 'refund' ? amount : amount || '25.00',
    subjectId: subjectId || '…',
    reason: reason || '…',
    reference: reference || '…',
  };
}

function requestOf({ kind, orgId, amount, subjectId, reason, reference, isMarked }: Given): {
  path: string;
  body: Row;
} {
  const named = { reference, reason };
  if (kind === 'credit') return { path: `${BASE}/credits`, body: { org_id: orgId, amount, ...named } };
  if (kind === 'refund') {
    const part = amount === '' ? {} : { amount };
    return { path: `${BASE}/refunds`, body: { subject_id: subjectId, ...part, from_platform: isMarked, ...named } };
  }
  const body = { org_id: orgId, direction: kind, amount, allow_debt: isMarked, ...named };
  return { path: `${BASE}/adjustments`, body };
}

function lineOf({ kind, orgId, amount, subjectId, reason, reference, isMarked }: Given): string {
  const named = `--reason ${quoted(reason)} --reference ${quoted(reference)}`;
  const dollarsOf = quoted(amount);
  if (kind === 'credit') return `${ADMIN} credit grant --org ${orgId} --usd ${dollarsOf} ${named}`;
  if (kind === 'refund') {
    const part = amount === '' ? '' : ` --usd ${dollarsOf}`;
    return `${ADMIN} refund ${quoted(subjectId)}${part}${isMarked ? ' --from-platform' : ''} ${named}`;
  }
  return `${ADMIN} adjust --org ${orgId} --${kind} ${dollarsOf}${isMarked ? ' --allow-debt' : ''} ${named}`;
}
