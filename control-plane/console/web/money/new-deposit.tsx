// The form of a new deposit. It offers only what the operator has set up.
import { useMemo } from 'preact/hooks';
import type { CreateDeposit, Deposit, DepositMethods } from '../../../../shared/api/deposit.ts';
import { ucentsFromText } from '../../../../shared/money.ts';
import { post } from '../core/api.ts';
import { cents } from '../core/format.ts';
import type { Resource } from '../core/reading.ts';
import { openSameKey } from '../core/same-key.ts';
import { useTyped } from '../core/typed.ts';
import { SameAs } from '../parts/command.tsx';
import { Field, Form, Select, useAction } from '../parts/forms.tsx';
import { Card, Note, Problem } from '../parts/layout.tsx';
import { chainName } from './deposit-states.ts';

const UCENTS_PER_CENT = 1_000_000n;

type Method = DepositMethods['methods'][number];

export function NewDeposit({ methods: { data, error, reload } }: { methods: Resource<DepositMethods> }) {
  const taken = data.value;
  if (taken === undefined) {
    if (error.value !== undefined) return <Problem error={error.value} retry={() => void reload()} />;
    return <div class="card pad quiet">Reading…</div>;
  }
  const first = taken.methods.find(({ available }) => available) ?? taken.methods[0];
  if (first === undefined)
    return (
      <Note>
        This installation takes no stablecoins. Ask its operator how to pay. The operator can credit a payment that was
        made in another way.
      </Note>
    );
  return (
    <Card title="New deposit" note="One token counts as one dollar">
      <div class="pad stack">
        <DepositForm {...taken} first={first} />
      </div>
    </Card>
  );
}

function DepositForm({ methods, first, ...limits }: DepositMethods & { first: Method }) {
  const [asset, setAsset] = useTyped<Method['asset']>('deposit/asset', first.asset);
  const [chain, setChain] = useTyped<Method['chain']>('deposit/chain', first.chain);
  const [amount, setAmount] = useTyped('deposit/amount', '');
  const method = chosenOf(methods, { asset, chain }) ?? first;
  const read = centsOf(amount);
  const amountCents = typeof read === 'number' ? read : 0;
  const body: CreateDeposit = { asset: method.asset, chain: method.chain, amount_usd_cents: amountCents };
  const withSameKey = useMemo(openSameKey, []);
  const action = useAction(async ({ goTo }) => {
    const { deposit_id: id } = await withSameKey(body, (options) => post<Deposit>('/v1/deposits', body, options));
    goTo(`/console/deposits/${id}`);
  });
  const broken = amount !== '' && typeof read === 'string' ? read : action.ruleOf('amount_usd_cents');
  const isDisabled = typeof read === 'string' || !method.available;
  return (
    <>
      <Form action={action} submit="Get an address" busy="Asking…" isDisabled={isDisabled}>
        <div class="grid">
          <Select
            label="Token"
            value={method.asset}
            options={assetsOf(methods)}
            onValue={(next) => setAsset(next)}
            rule={action.ruleOf('asset')}
          />
          <Select
            label="Chain"
            value={method.chain}
            options={chainsOf(methods, method.asset)}
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
            hint={limitsText(limits)}
            rule={broken}
          />
        </div>
        {!method.available && (
          <Note tone="warn">
            Deposits on {chainName(method.chain)} are paused. Choose another chain, or try again later.
          </Note>
        )}
      </Form>
      {typeof read === 'number' && (
        <SameAs
          cli={`svc deposit create --chain ${method.chain} --asset ${method.asset} --cents ${amountCents}`}
          curl={{ method: 'POST', path: '/v1/deposits', body }}
        />
      )}
    </>
  );
}

/** The chosen method. If the chosen token is not taken on the chosen chain, the first chain on which it is taken. */
function chosenOf(methods: readonly Method[], { asset, chain }: Pick<Method, 'asset' | 'chain'>): Method | undefined {
  const ofAsset = methods.filter((method) => method.asset === asset);
  return ofAsset.find((method) => method.chain === chain) ?? ofAsset[0];
}

function assetsOf(methods: readonly Method[]): (readonly [Method['asset'], string])[] {
  return [...new Set(methods.map(({ asset }) => asset))].map((asset) => [asset, asset.toUpperCase()]);
}

function chainsOf(methods: readonly Method[], asset: Method['asset']): (readonly [Method['chain'], string])[] {
  return methods
    .filter((method) => method.asset === asset)
    .map(({ chain, available }) => [chain, available ? chainName(chain) : `${chainName(chain)} (paused)`]);
}

function limitsText({ min_usd_cents: min, max_usd_cents: max }: Omit<DepositMethods, 'methods'>): string | undefined {
  return min === null || max === null ? undefined : `From ${cents(min)} to ${cents(max)}.`;
}

/** Whole cents of a text like `25.50`; for any other text, the rule that it breaks. */
function centsOf(text: string): number | string {
  const ucents = ucentsFromText(text.trim());
  if (typeof ucents === 'string') return ucents;
  return ucents % UCENTS_PER_CENT === 0n ? Number(ucents / UCENTS_PER_CENT) : 'must be whole cents';
}
