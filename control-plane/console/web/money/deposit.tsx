// One deposit: the address, the amount and the time limit, and the progress of the deposit.
import { Link } from 'wouter-preact';
import type { Deposit as DepositView } from '../../../../shared/api/deposit.ts';
import { useResource } from '../core/data.ts';
import { cents, duration, time } from '../core/format.ts';
import type { ScreenProps } from '../core/screen.ts';
import { Copy } from '../parts/command.tsx';
import { Card, Head, Note, Problem } from '../parts/layout.tsx';
import { useNow } from '../parts/now.ts';
import { QrCode } from '../parts/qr-code.tsx';
import { chainName, difference, STEPS, stateOf, takesTokens } from './deposit-states.ts';
import { DepositStatus } from './deposits.tsx';

/** The deposit is also read with this period, because the live stream may be interrupted. */
const REREAD_MS = 15_000;

export function Deposit({ params: { id = '' } }: ScreenProps) {
  const path = `/v1/deposits/${encodeURIComponent(id)}`;
  const { data, error, reload } = useResource<DepositView>(path, {
    on: [{ type: 'deposit', id }],
    everyMs: REREAD_MS,
  });
  const deposit = data.value;
  return (
    <>
      <Head
        title={deposit === undefined ? 'Deposit' : `Deposit of ${cents(deposit.amount_usd_cents)}`}
        crumb={
          <>
            <Link href="/console/deposits">Deposits</Link> / <code>{id}</code>
          </>
        }
        same={{ cli: `svc deposit get ${id}`, curl: { path } }}
      />
      {error.value !== undefined && <Problem error={error.value} retry={() => void reload()} />}
      {deposit !== undefined && <Shown deposit={deposit} />}
    </>
  );
}

function Shown({ deposit }: { deposit: DepositView }) {
  const nowMs = useNow();
  return (
    <div class="split even">
      {takesTokens(deposit, nowMs) ? <Pay deposit={deposit} nowMs={nowMs} /> : <Closed deposit={deposit} />}
      <Card
        title="Progress"
        actions={
          <span class="push">
            <DepositStatus deposit={deposit} />
          </span>
        }
      >
        <div class="pad stack">
          <Progress deposit={deposit} />
          {deposit.tx_hash !== undefined && (
            <div class="stack tight">
              <h3>First transfer</h3>
              <Copy text={deposit.tx_hash} what="the transaction" />
            </div>
          )}
        </div>
      </Card>
    </div>
  );
}

function Pay({ deposit, nowMs }: { deposit: DepositView; nowMs: number }) {
  const { pay_address: address, pay_amount: amount, asset, chain, expires_at: end } = deposit;
  const token = asset.toUpperCase();
  return (
    <Card title={`Send ${amount} ${token} on ${chainName(chain)}`}>
      <div class="pad stack">
        <Note tone="warn">
          Send only {token}, and only on {chainName(chain)}. Other tokens and other chains are not credited by
          themselves.
        </Note>
        <div class="row">
          <QrCode text={address} label="The address as a QR code" />
        </div>
        <div class="stack tight">
          <h3>Address, of this deposit alone</h3>
          <Copy text={address} what="the address" />
        </div>
        <div class="stack tight">
          <h3>Exact amount in {token}</h3>
          <Copy text={amount} what="the amount" />
        </div>
        <p class="small dim">
          Before <time dateTime={end}>{time(end)}</time> UTC, in {duration((Date.parse(end) - nowMs) / 1_000)}. A
          transfer counts by the time of its block. Several transfers add up.
        </p>
      </div>
    </Card>
  );
}

function Closed({ deposit }: { deposit: DepositView }) {
  const { pay_address: address, pay_amount: amount, asset, chain, credited_cents: credited } = deposit;
  return (
    <Card title="What was asked for">
      <dl class="kv pad">
        <dt>Amount</dt>
        <dd>
          {amount} {asset.toUpperCase()} on {chainName(chain)}
        </dd>
        <dt>Credited</dt>
        <dd>
          {credited === undefined ? 'not yet' : cents(credited)} <span class="quiet">{difference(deposit)}</span>
        </dd>
        <dt>Address</dt>
        <dd>
          <code>{address}</code>
        </dd>
        <dt>Begun</dt>
        <dd>{time(deposit.created_at)} UTC</dd>
        <dt>Ended</dt>
        <dd>{time(deposit.expires_at)} UTC. Send nothing more to this address.</dd>
      </dl>
    </Card>
  );
}

function Progress({ deposit }: { deposit: DepositView }) {
  const { tone, step, next } = stateOf(deposit);
  const current = tone === 'info' ? 'now' : tone;
  return (
    <ol class="steps">
      {STEPS.map((text, index) => (
        <li key={text} class={index < step ? 'done' : index === step ? current : 'todo'}>
          <b>{text}</b>
          {index === step && <span class="small dim">{next}</span>}
          {step === STEPS.length && index === step - 1 && <span class="small dim">{next}</span>}
        </li>
      ))}
    </ol>
  );
}
