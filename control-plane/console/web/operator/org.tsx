// One organisation for operators: its balance and warnings, its bill, corrections, API keys and members.
import { Link } from 'wouter-preact';
import { useState } from 'preact/hooks';
import type { NewApiKey, Org } from '../../../../shared/api/account.ts';
import { post } from '../core/api.ts';
import { useResource } from '../core/data.ts';
import { dollars, time } from '../core/format.ts';
import type { Resource } from '../core/reading.ts';
import type { ScreenProps } from '../core/screen.ts';
import { useTyped } from '../core/typed.ts';
import { MonthBill } from '../money/bill.tsx';
import { SameAs } from '../parts/command.tsx';
import { Field, Form, useAction } from '../parts/forms.tsx';
import { Card, Figures, Head, Note, Problem } from '../parts/layout.tsx';
import { ShownOnce } from '../parts/shown-once.tsx';
import { Corrections } from './corrections.tsx';
import { Decisions } from './decision.tsx';
import { type Listing, ListingPart } from './listing.tsx';
import { Make } from './making.tsx';
import { fundsOf, keyOf } from './makings.ts';
import { Members } from './people.tsx';
import { ORG_VERBS, type Row, textOf } from './verbs.ts';

const ORGS = { path: '/admin/v1/orgs', command: 'svc-control-plane admin org' };
const REREAD_MS = 15_000;

/** The answer of `GET /admin/balances/{id}`. */
interface Balance {
  balance: string;
  held_cents: number;
  available_cents: number;
  burn_rate_per_hour: string;
  warn_below_hours: string;
  supplier_unpaid: string;
}

export function OrgPage({ params: { id = '' } }: ScreenProps) {
  const path = `${ORGS.path}/${encodeURIComponent(id)}`;
  const org = useResource<Org>(path);
  const balancePath = `/admin/v1/balances/${encodeURIComponent(id)}`;
  const balance = useResource<Balance>(balancePath, { everyMs: REREAD_MS });
  const shown = org.data.value;
  return (
    <>
      <Head
        title={shown?.name ?? 'Organisation'}
        crumb={
          <>
            <Link href="/console/operate/orgs">Organisations</Link> / <code>{id}</code>
          </>
        }
        same={{ cli: `${ORGS.command} show ${id}`, curl: { path } }}
      >
        {shown !== undefined && (
          <Decisions {...ORGS} verbs={ORG_VERBS} row={{ ...shown }} id={id} decided={org.reload} />
        )}
      </Head>
      {org.error.value !== undefined && <Problem error={org.error.value} retry={() => void org.reload()} />}
      {shown !== undefined && (
        <>
          {shown.suspended_at !== null && (
            <Note tone="warn">
              Suspended since {time(shown.suspended_at)} UTC: {shown.suspended_reason}
            </Note>
          )}
          <Money id={id} path={balancePath} balance={balance} />
          <MonthBill
            path={`${balancePath}/statement`}
            cli={`svc-control-plane admin statement --org ${id}`}
            isOwn={false}
          />
          <Keys orgId={id} />
          <Members orgId={id} />
        </>
      )}
    </>
  );
}

/** A key that is made here is shown once. */
function Keys({ orgId }: { orgId: string }) {
  const [key, setKey] = useState<Pick<NewApiKey, 'name' | 'key'>>();
  const made = (reload: () => Promise<void>) => (answer: Row) => {
    setKey({ name: textOf(answer['name']), key: textOf(answer['key']) });
    return reload();
  };
  return (
    <>
      {key !== undefined && (
        <ShownOnce
          title={`The key ${key.name}`}
          secret={key.key}
          what="the key"
          note="Whoever has it can do what its scopes say."
        />
      )}
      <ListingPart listing={keysOf(orgId)} actions={(reload) => <Make making={keyOf(orgId)} made={made(reload)} />} />
    </>
  );
}

interface MoneyProps {
  id: string;
  path: string;
  balance: Resource<Balance>;
}

function Money({ id, path, balance: { data, error, reload } }: MoneyProps) {
  if (error.value !== undefined) return <Problem error={error.value} retry={() => void reload()} />;
  if (data.value === undefined) return <div class="card pad quiet">Reading…</div>;
  const { balance, available_cents: available, held_cents: held, supplier_unpaid: owed } = data.value;
  const { burn_rate_per_hour: burn, warn_below_hours: warned } = data.value;
  return (
    <>
      <div class="row far">
        <h2>Balance</h2>
        <Make making={fundsOf(id)} made={reload} />
      </div>
      <Figures
        figures={[
          { label: 'Available', value: dollars(available / 100), small: `of ${dollars(balance)}` },
          { label: 'Held', value: dollars(held / 100), small: 'for work that runs' },
          { label: 'Spending', value: `${dollars(burn)}/h`, small: 'what runs now' },
          { label: 'Owed as a supplier', value: dollars(owed), small: 'before payouts in flight' },
        ]}
      />
      <SameAs cli={`svc-control-plane admin balance show --org ${id}`} curl={{ path }} />
      <div class="split even">
        <Corrections orgId={id} corrected={reload} />
        <Warnings key={warned} id={id} path={path} warned={warned} changed={reload} />
      </div>
    </>
  );
}

interface WarningsProps {
  id: string;
  path: string;
  /** Hours at which the organisation is warned, separated by commas, like `24, 6, 1`. */
  warned: string;
  changed(): Promise<void>;
}

function Warnings({ id, path, warned, changed }: WarningsProps) {
  const [text, setText] = useTyped(`warnings/${id}`, warned);
  const hours = text.split(',').flatMap((each) => (each.trim() === '' ? [] : [Number(each)]));
  const body = { below_hours: hours };
  const action = useAction(async () => {
    await post(`${path}/warnings`, body);
    await changed();
  });
  const isBroken = hours.some((each) => !Number.isInteger(each));
  const refused = ['below_hours', ...hours.map((_, index) => `below_hours[${index}]`)].map(action.ruleOf);
  const rule = isBroken ? 'must be whole numbers, like 24, 6, 1' : refused.find((each) => each !== undefined);
  return (
    <Card title="Warnings" note={warned === '' ? 'never' : `below ${warned} hours`}>
      <div class="pad stack">
        <Form action={action} submit="Change the warnings" busy="Changing…" isDisabled={isBroken}>
          <Field
            label="Hours left"
            value={text}
            onValue={setText}
            hint="Customers are warned at these hours left at the present rate. Empty: never."
            rule={rule}
          />
        </Form>
        <SameAs
          cli={`svc-control-plane admin balance warn --org ${id} --below-hours ${hours.length === 0 ? 'never' : hours.join(',')}`}
          curl={{ method: 'POST', path: `${path}/warnings`, body }}
        />
      </div>
    </Card>
  );
}

const keysOf = (orgId: string): Listing => ({
  title: 'API keys',
  path: `/admin/v1/keys?org_id=${encodeURIComponent(orgId)}&limit=100`,
  cli: `svc-control-plane admin key list --org ${orgId}`,
  id: 'id',
  columns: ['name', 'prefix', 'scopes', 'created_at', 'last_used_at', 'expires_at', 'revoked_at'],
  what: 'The organisation has made no key.',
  verbs: [
    {
      verb: 'revoke',
      says: 'The key is refused at once, and for good.',
      fits: (row) => row['revoked_at'] === null,
    },
  ],
});
