// Adding to the balance with stablecoins: a new deposit, and all deposits so far.
import { useMemo } from 'preact/hooks';
import { Link } from 'wouter-preact';
import type { CreateDeposit, Deposit, DepositChain } from '../../../../shared/api/deposit.ts';
import { ucentsFromText } from '../../../../shared/money.ts';
import { post } from '../core/api.ts';
import { useLiveList } from '../core/data.ts';
import { cents, time } from '../core/format.ts';
import { openSameKey } from '../core/same-key.ts';
import { may } from '../core/session.ts';
import { useTyped } from '../core/typed.ts';
import { SameAs } from '../parts/command.tsx';
import { Field, Form, Select, useAction } from '../parts/forms.tsx';
import { Badge, Card, Empty, Head, Note } from '../parts/layout.tsx';
import { type Column, LiveTable } from '../parts/table.tsx';
import { difference, stateOf } from './deposit-states.ts';

const UCENTS_PER_CENT = 1_000_000n;

const CHAINS: readonly (readonly [DepositChain, string])[] = [
  ['base', 'Base'],
  ['arbitrum', 'Arbitrum'],
  ['polygon', 'Polygon'],
  ['solana', 'Solana'],
  ['ethereum', 'Ethereum'],
];
const ASSETS: readonly (readonly [CreateDeposit['asset'], string])[] = [
  ['usdc', 'USDC'],
  ['usdt', 'USDT'],
];

const COLUMNS: readonly Column<Deposit>[] = [
  {
    title: 'Begun (UTC)',
    cell: ({ deposit_id: id, created_at: at }) => (
      <>
        <Link href={`/console/deposits/${id}`}>
          <time dateTime={at}>{time(at)}</time>
        </Link>
        <br />
        <small class="quiet w">
          <code>{id}</code>
        </small>
      </>
    ),
  },
  { title: 'Status', cell: (deposit) => <DepositStatus deposit={deposit} /> },
  {
    title: 'Asked for',
    class: 'w',
    cell: ({ pay_amount: amount, asset, chain }) => `${amount} ${asset.toUpperCase()} on ${chainName(chain)}`,
  },
  {
    title: 'Transaction',
    class: 'w',
    cell: ({ tx_hash: hash }) =>
      hash === undefined ? <span class="quiet">–</span> : <code title={hash}>{short(hash)}</code>,
  },
  {
    title: 'Credited',
    class: 'num',
    cell: ({ credited_cents: credited }) =>
      credited === undefined ? <span class="quiet">not yet</span> : cents(credited),
  },
];

export function Deposits() {
  const list = useLiveList<Deposit>({
    path: '/v1/deposits?limit=50',
    idOf: ({ deposit_id: id }) => id,
    type: 'deposit',
  });
  return (
    <>
      <Head
        title="Deposits"
        crumb={<Link href="/console/usage">Usage and balance</Link>}
        same={{ cli: 'svc deposit list', curl: { path: '/v1/deposits?limit=50' } }}
      />
      {may('deposits: write') && <NewDeposit />}
      <LiveTable
        caption="Deposits"
        list={list}
        columns={COLUMNS}
        empty={
          <Empty title="No deposit yet" cli="svc deposit create --chain base --asset usdc --cents 5000">
            USDC or USDT that you send to an address of your own add to the balance, one token for one dollar.
          </Empty>
        }
      />
    </>
  );
}

export function chainName(chain: DepositChain): string {
  return CHAINS.find(([each]) => each === chain)?.[1] ?? chain;
}

export function DepositStatus({ deposit }: { deposit: Deposit }) {
  const { tone, text } = stateOf(deposit);
  const by = difference(deposit);
  return (
    <>
      <Badge tone={tone}>{text}</Badge>
      {by !== undefined && <small>{by}</small>}
    </>
  );
}

function NewDeposit() {
  const [asset, setAsset] = useTyped<CreateDeposit['asset']>('deposit/asset', 'usdc');
  const [chain, setChain] = useTyped<DepositChain>('deposit/chain', 'base');
  const [amount, setAmount] = useTyped('deposit/amount', '');
  const read = centsOf(amount);
  const amountCents = typeof read === 'number' ? read : 0;
  const body: CreateDeposit = { asset, chain, amount_usd_cents: amountCents };
  const withSameKey = useMemo(openSameKey, []);
  const action = useAction(async ({ goTo }) => {
    const { deposit_id: id } = await withSameKey(body, (options) => post<Deposit>('/v1/deposits', body, options));
    goTo(`/console/deposits/${id}`);
  });
  const broken = amount !== '' && typeof read === 'string' ? read : action.ruleOf('amount_usd_cents');
  return (
    <Card title="New deposit" note="One token counts as one dollar">
      <div class="pad stack">
        <Form action={action} submit="Get an address" busy="Asking…" isDisabled={typeof read === 'string'}>
          <div class="grid">
            <Select
              label="Token"
              value={asset}
              options={ASSETS}
              onValue={(next) => setAsset(next)}
              rule={action.ruleOf('asset')}
            />
            <Select
              label="Chain"
              value={chain}
              options={CHAINS}
              onValue={(next) => setChain(next)}
              rule={action.ruleOf('chain')}
            />
            <Field
              label="Amount in dollars"
              required
              inputMode="decimal"
              placeholder="250.00"
              value={amount}
              onValue={setAmount}
              rule={broken}
            />
          </div>
          {action.error?.code === 'deposits_unavailable' && (
            <Note tone="warn">
              Deposits are paused or not set up in this installation. The balance does not change. Ask the operator, who
              can also credit a payment that was made in another way.
            </Note>
          )}
        </Form>
        {typeof read === 'number' && (
          <SameAs
            cli={`svc deposit create --chain ${chain} --asset ${asset} --cents ${amountCents}`}
            curl={{ method: 'POST', path: '/v1/deposits', body }}
          />
        )}
      </div>
    </Card>
  );
}

/** Whole cents of a text like `25.50`; for any other text, the rule that it breaks. */
function centsOf(text: string): number | string {
  const ucents = ucentsFromText(text.trim());
  if (typeof ucents === 'string') return ucents;
  return ucents % UCENTS_PER_CENT === 0n ? Number(ucents / UCENTS_PER_CENT) : 'must be whole cents';
}

function short(hash: string): string {
  return `${hash.slice(0, 6)}…${hash.slice(-4)}`;
}
