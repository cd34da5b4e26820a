// API keys of the organisation. The key itself is shown once.
import { useMemo, useState } from 'preact/hooks';
import type { ApiKey, NewApiKey } from '../../../../shared/api/account.ts';
import { call, post } from '../core/api.ts';
import { serviceNow } from '../core/clock.ts';
import { useLiveList } from '../core/data.ts';
import { date, quoted, relative } from '../core/format.ts';
import { may, session } from '../core/session.ts';
import { useTyped } from '../core/typed.ts';
import { SameAs } from '../parts/command.tsx';
import { Field, Form, Select, useAction } from '../parts/forms.tsx';
import { Badge, Card, Empty, Head } from '../parts/layout.tsx';
import { ShownOnce } from '../parts/shown-once.tsx';
import { LiveTable } from '../parts/table.tsx';
import { Remove } from './security.tsx';

const DAY_MS = 86_400_000;
/** Days until a new key ends. */
const ENDS: readonly (readonly [string, string])[] = [
  ['', 'never'],
  ['30', 'in 30 days'],
  ['90', 'in 90 days'],
  ['365', 'in a year'],
];

/** Scopes that only sessions have. */
const NOT_FOR_KEYS = new Set(['session']);
const NO_SCOPES: readonly string[] = [];

export function ApiKeys() {
  const [made, setMade] = useState<NewApiKey>();
  const list = useLiveList<ApiKey>({ path: '/v1/api-keys?limit=50', idOf: ({ id }) => id, type: 'api_key' });
  const revoke = async (id: string): Promise<void> => {
    await call('DELETE', `/v1/api-keys/${id}`);
    await list.reload();
  };
  const done = (key: NewApiKey): void => {
    setMade(key);
    void list.reload();
  };
  return (
    <>
      <Head title="API keys" same={{ cli: 'svc api GET /api-keys', curl: { path: '/v1/api-keys?limit=50' } }} />
      {made !== undefined && (
        <ShownOnce
          title={`The key ${made.name}`}
          secret={made.key}
          what="the key"
          note="Whoever has it can do what its scopes say."
        />
      )}
      {may('api_keys: write') && <NewKey done={done} />}
      <LiveTable
        caption="API keys"
        list={list}
        columns={[
          {
            title: 'Name',
            cell: ({ name, prefix }) => (
              <>
                {name}
                <br />
                <small class="quiet">
                  <code>{prefix}…</code>
                </small>
              </>
            ),
          },
          { title: 'Status', cell: (key) => <KeyStatus apiKey={key} /> },
          { title: 'Scopes', class: 'w', cell: ({ scopes }) => <span class="brk">{scopes.join(', ')}</span> },
          { title: 'Last used', class: 'w', cell: ({ last_used_at: at }) => (at === null ? 'never' : relative(at)) },
          {
            title: 'Revoke',
            cell: ({ id, name, revoked_at: revoked }) =>
              revoked === null &&
              may('api_keys: write') && <Remove name={name} verb="Revoke" remove={() => revoke(id)} />,
          },
        ]}
        empty={
          <Empty title="No key yet" cli="svc auth login">
            Programs and the command line call the API with a key.
          </Empty>
        }
      />
    </>
  );
}

function KeyStatus({ apiKey: { revoked_at: revoked, expires_at: end } }: { apiKey: ApiKey }) {
  if (revoked !== null) return <Badge tone="">revoked</Badge>;
  const isOver = end !== null && Date.parse(end) <= serviceNow();
  return (
    <>
      <Badge tone={isOver ? '' : 'ok'}>{isOver ? 'expired' : 'active'}</Badge>
      {end !== null && !isOver && <small>until {date(end)}</small>}
    </>
  );
}

function NewKey({ done }: { done(key: NewApiKey): void }) {
  const [name, setName] = useTyped('api-key/name', '');
  const [days, setDays] = useTyped('api-key/days', '');
  const [chosen, setChosen] = useTyped('api-key/scopes', NO_SCOPES);
  const end = useMemo(() => endAfter(days), [days]);
  const scopes = (session.value?.scopes ?? []).filter((scope) => !NOT_FOR_KEYS.has(scope));
  const body = { name, scopes: chosen, ...(end === undefined ? {} : { expires_at: end }) };
  const isComplete = name !== '' && chosen.length > 0;
  const action = useAction(async () => {
    done(await post<NewApiKey>('/v1/api-keys', body));
    setName('');
    setDays('');
    setChosen(NO_SCOPES);
  });
  const toggle = (scope: string): void => {
    setChosen(chosen.includes(scope) ? chosen.filter((each) => each !== scope) : [...chosen, scope]);
  };
  return (
    <Card title="New key">
      <div class="pad stack">
        <Form action={action} submit="Make the key" busy="Making…" isDisabled={!isComplete}>
          <div class="grid">
            <Field label="Name" required value={name} onValue={setName} rule={action.ruleOf('name')} />
            <Select label="It ends" value={days} options={ENDS} onValue={setDays} rule={action.ruleOf('expires_at')} />
          </div>
          <fieldset>
            <legend>It may</legend>
            <div class="grid">
              {scopes.map((scope) => (
                <label key={scope} class="check">
                  <input type="checkbox" checked={chosen.includes(scope)} onChange={() => toggle(scope)} />
                  {scope}
                </label>
              ))}
            </div>
          </fieldset>
        </Form>
        {isComplete && (
          <SameAs
            isLong
            cli={`svc api POST /api-keys --body ${quoted(JSON.stringify(body))}`}
            curl={{ method: 'POST', path: '/v1/api-keys', body }}
          />
        )}
      </div>
    </Card>
  );
}

/** The end of a key that is made now. An empty text means that the key has no end. */
function endAfter(days: string): string | undefined {
  return days === '' ? undefined : new Date(serviceNow() + Number(days) * DAY_MS).toISOString();
}
