// The earnings of the supplier's machines, its payouts, and the address to which payouts are sent.
import { Link } from 'wouter-preact';
import type { CommunityEarnings, CommunitySupplier, EarningsEntry } from '../../../../shared/api/community.ts';
import type { Chain, CommunityPayout, PayoutDestination } from '../../../../shared/api/payout.ts';
import { call } from '../core/api.ts';
import { serviceNow } from '../core/clock.ts';
import { useLiveList, useResource } from '../core/data.ts';
import { cents, date, dollars, quoted, shortId, time } from '../core/format.ts';
import { may } from '../core/session.ts';
import { useTyped } from '../core/typed.ts';
import { SameAs } from '../parts/command.tsx';
import { Field, Form, Select, useAction } from '../parts/forms.tsx';
import { Badge, Card, Empty, Figures, Head, Note, Problem, type Tone } from '../parts/layout.tsx';
import { type Column, LiveTable, RowsTable } from '../parts/table.tsx';

const ENTRY_COLUMNS: readonly Column<EarningsEntry>[] = [
  { title: 'When (UTC)', cell: ({ accrued_at: at }) => <time dateTime={at}>{time(at)}</time> },
  { title: 'Machine', class: 'w', cell: ({ machine_id: id }) => <code>{shortId(id)}</code> },
  { title: 'Rental', cell: ({ instance_id: id, reason }) => <Rental id={id} reason={reason} /> },
  {
    title: 'Payable',
    class: 'w',
    cell: ({ payable_at: at, paid }) => (paid ? 'settled' : at === null ? 'disputed' : date(at)),
  },
  { title: 'Amount', class: 'num', cell: ({ amount }) => dollars(amount, 4) },
];

const PAYOUT_TONES: Record<CommunityPayout['status'], Tone> = {
  due: 'info',
  in_flight: 'info',
  paid: 'ok',
  failed: 'bad',
};

const PAYOUT_COLUMNS: readonly Column<CommunityPayout>[] = [
  { title: 'Since', cell: ({ created_at: at }) => date(at) },
  {
    title: 'Status',
    cell: ({ status, reason }) => (
      <>
        <Badge tone={PAYOUT_TONES[status]}>{status.replace('_', ' ')}</Badge>
        {reason !== null && <small>{reason}</small>}
      </>
    ),
  },
  { title: 'Reference', class: 'w', cell: ({ reference }) => <code class="brk">{reference ?? ''}</code> },
  { title: 'Amount', class: 'num', cell: ({ amount_cents: amount }) => cents(amount) },
];

const SAME = { cli: 'svc machine earnings', curl: { path: '/v1/community/earnings?limit=50' } };

export function Earnings() {
  const { error } = useResource<CommunitySupplier>('/v1/community/supplier');
  return error.value?.status === 404 ? <NoSupplier /> : <Earned />;
}

/** An organisation that is no supplier can name no address for payouts. */
function NoSupplier() {
  return (
    <>
      <Head title="Earnings" same={SAME} />
      <Card>
        <Empty
          title="Nothing earned yet"
          action={
            <Link class="btn" href="/console/machines">
              Rent out your GPUs
            </Link>
          }
        >
          Your organisation is no supplier. Once it is, and a machine of yours is rented, what it earns is here.
        </Empty>
      </Card>
    </>
  );
}

function Earned() {
  const { data, error, reload } = useResource<CommunityEarnings>('/v1/community/earnings?limit=50');
  const payouts = useLiveList<CommunityPayout>({
    path: '/v1/community/payouts?limit=50',
    idOf: ({ payout_id: id }) => id,
    type: 'payout',
  });
  const earned = data.value;
  return (
    <>
      <Head title="Earnings" same={SAME} />
      {error.value !== undefined && <Problem error={error.value} retry={() => void reload()} />}
      {earned !== undefined && (
        <Figures
          figures={[
            { label: 'Payable now', value: cents(earned.payable_cents), small: 'old enough, and not disputed' },
            { label: 'Not paid out yet', value: cents(earned.unpaid_cents) },
            { label: 'Earned in all', value: cents(earned.accrued_cents), small: 'less what was taken back' },
          ]}
        />
      )}
      <Destination payable={earned?.payable_cents} />
      <LiveTable
        caption="Payouts"
        list={payouts}
        columns={PAYOUT_COLUMNS}
        empty={<Empty title="No payout yet">What is payable is paid out by the rules above.</Empty>}
      />
      {earned !== undefined && earned.entries.length > 0 && (
        <Card title="Entries" note="The newest 50. The command shows all.">
          <RowsTable caption="Entries" rows={earned.entries} columns={ENTRY_COLUMNS} />
        </Card>
      )}
    </>
  );
}

function Rental({ id, reason }: { id: string; reason: string | null }) {
  return (
    <>
      <code>{id}</code>
      {reason !== null && <small class="warn">{reason}</small>}
    </>
  );
}

const CHAINS: readonly (readonly [Chain, string])[] = [
  ['ethereum', 'Ethereum'],
  ['base', 'Base'],
  ['arbitrum', 'Arbitrum'],
  ['polygon', 'Polygon'],
  ['solana', 'Solana'],
];

function Destination({ payable }: { payable: number | undefined }) {
  const path = '/v1/community/payout-destination';
  const { data, error, reload } = useResource<PayoutDestination>(path);
  const [chain, setChain] = useTyped<Chain>('payout-address/chain', 'base');
  const [address, setAddress] = useTyped('payout-address/address', '');
  const action = useAction(async () => {
    await call('PUT', path, { chain, address });
    setAddress('');
    await reload();
  });
  const drop = useAction(async () => {
    await call('DELETE', `${path}/pending`);
    await reload();
  });
  const { destination = null, pending = null, schedule } = data.value ?? {};
  return (
    <Card title="Where payouts go" note="USDC">
      <div class="pad stack">
        {error.value !== undefined && <Problem error={error.value} retry={() => void reload()} />}
        {destination === null ? (
          <p class="dim">No address yet. Nothing is paid out before there is one.</p>
        ) : (
          <p>
            <code class="brk">{destination.address}</code> on {destination.chain}, since {date(destination.since)}
          </p>
        )}
        {schedule !== undefined && <p class="small dim">{scheduleWords(schedule, payable)}</p>}
        {pending !== null && (
          <Note
            tone="warn"
            action={
              may('supply: write') && (
                <button class="btn" type="button" disabled={drop.isBusy} onClick={() => void drop.run()}>
                  Withdraw the change
                </button>
              )
            }
          >
            <code class="brk">{pending.address}</code> on {pending.chain} comes into force at{' '}
            {time(pending.in_force_at)} UTC. Until then no payout leaves.
          </Note>
        )}
        {drop.error !== undefined && <Problem error={drop.error} />}
        {may('supply: write') && (
          <Form action={action} submit="Change the address" busy="Changing…" isDisabled={address === ''}>
            <Select label="Chain" value={chain} options={CHAINS} onValue={(next) => setChain(next)} />
            <Field label="Address" value={address} onValue={setAddress} rule={action.ruleOf('address')} />
          </Form>
        )}
        {address !== '' && (
          <SameAs
            isLong
            cli={`svc machine pay-to --chain ${chain} --address ${quoted(address)}`}
            curl={{ method: 'PUT', path, body: { chain, address } }}
          />
        )}
      </div>
    </Card>
  );
}

/** When the next payout becomes due, in words. */
function scheduleWords(
  { every, minimum_cents: minimum, not_before: notBefore, earnings_delay_hours: delay }: PayoutDestination['schedule'],
  payable: number | undefined,
): string {
  const isOpen = Date.parse(notBefore) <= serviceNow();
  const missing = payable === undefined || payable >= minimum ? '' : ` ${cents(minimum - payable)} are missing.`;
  return [
    `A payout becomes due as soon as ${cents(minimum)} are payable, once in each ${every === 'day' ? 'UTC day' : 'week from Monday on'}.`,
    isOpen ? `There was none in this ${every} yet.${missing}` : `The next one is possible from ${date(notBefore)} on.`,
    ...(delay === 0 ? [] : [`An earning is payable ${delay} h after its entry.`]),
  ].join(' ');
}
