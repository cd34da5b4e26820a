// Adding to the balance with stablecoins: a new deposit, and all deposits so far.
import { Link } from 'wouter-preact';
import type { Deposit, DepositMethods } from '../../../../shared/api/deposit.ts';
import { useLiveList, useResource } from '../core/data.ts';
import { cents, time } from '../core/format.ts';
import { may } from '../core/session.ts';
import { Badge, Empty, Head } from '../parts/layout.tsx';
import { type Column, LiveTable } from '../parts/table.tsx';
import { chainName, difference, stateOf } from './deposit-states.ts';
import { NewDeposit } from './new-deposit.tsx';

/** Period in which the page notices that a chain is paused. */
const REREAD_MS = 60_000;

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
  const methods = useResource<DepositMethods>('/v1/deposits/methods', { everyMs: REREAD_MS });
  return (
    <>
      <Head
        title="Deposits"
        crumb={<Link href="/console/usage">Usage and balance</Link>}
        same={{ cli: 'svc deposit list', curl: { path: '/v1/deposits?limit=50' } }}
      />
      {may('deposits: write') && <NewDeposit methods={methods} />}
      <LiveTable
        caption="Deposits"
        list={list}
        columns={COLUMNS}
        empty={<NoDeposit isTaken={methods.data.value?.methods.length !== 0} />}
      />
    </>
  );
}

function NoDeposit({ isTaken }: { isTaken: boolean }) {
  if (!isTaken) return <Empty title="No deposit">This installation takes no stablecoins, so none is listed.</Empty>;
  return (
    <Empty title="No deposit yet" cli="svc deposit create --chain base --asset usdc --cents 5000">
      USDC or USDT that you send to an address of your own add to the balance, one token for one dollar.
    </Empty>
  );
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

function short(hash: string): string {
  return `${hash.slice(0, 6)}…${hash.slice(-4)}`;
}
