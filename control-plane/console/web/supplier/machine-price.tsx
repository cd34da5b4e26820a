// The price of a machine. A rental keeps the price at which it began, so a wrong price could be dear for long. A large change is asked about first.
import { useState } from 'preact/hooks';
import type { CommunityMachine } from '../../../../shared/api/community.ts';
import { call } from '../core/api.ts';
import { dollars, rate } from '../core/format.ts';
import { useTyped } from '../core/typed.ts';
import { SameAs } from '../parts/command.tsx';
import { Dialog, Field, Form, useAction } from '../parts/forms.tsx';
import { Card } from '../parts/layout.tsx';

/** A change by more than this factor is asked about. */
const FACTOR_MAX = 2;

interface PriceProps {
  machine: CommunityMachine;
  changed(): void;
}

export function Price({ machine, changed }: PriceProps) {
  const { machine_id: id, price_per_hour: now, platform_fee_percent: fee } = machine;
  const [price, setPrice] = useTyped(`price/${id}`, String(now ?? ''));
  const [isAsking, setAsking] = useState(false);
  const path = `/v1/community/machines/${id}`;
  const body = { price_per_hour: Number(price) };
  const net = Number(price) * (1 - fee / 100);
  const change = useAction(async () => {
    await call('PATCH', path, body);
    setAsking(false);
    changed();
  });
  const submit = async (): Promise<void> => {
    if (now !== null && isFarFrom(now, Number(price))) setAsking(true);
    else await change.run();
  };
  return (
    <Card title="Your price" note="for rentals from now on">
      <div class="pad stack">
        <Form
          action={{ ...change, run: submit }}
          submit="Change the price"
          busy="Changing…"
          isDisabled={!(Number(price) > 0)}
        >
          <Field
            label="Price of one GPU per hour, in dollars"
            inputMode="decimal"
            value={price}
            onValue={setPrice}
            rule={change.ruleOf('price_per_hour')}
            hint={Number(price) > 0 ? `You earn ${dollars(net, 4)} of it: the fee is ${fee} %` : `The fee is ${fee} %`}
          />
        </Form>
        {isAsking && now !== null && (
          <Dialog title={`Change ${rate(now)} to ${rate(Number(price))}?`} close={() => setAsking(false)}>
            <p class="dim">Each rental that begins at this price keeps it until it ends.</p>
            <Form action={change} submit="Change the price" busy="Changing…" cancel={() => setAsking(false)} />
          </Dialog>
        )}
        {Number(price) > 0 && (
          <SameAs isLong cli={`svc machine change ${id} --price ${price}`} curl={{ method: 'PATCH', path, body }} />
        )}
      </div>
    </Card>
  );
}

function isFarFrom(now: number, next: number): boolean {
  return next > now * FACTOR_MAX || next < now / FACTOR_MAX;
}
