// The end of the offer of a machine. A supplier plans maintenance this way: nothing begins on the machine that would outlast the time, and whoever
// rents it is told.
import type { CommunityMachine } from '../../../../shared/api/community.ts';
import { call } from '../core/api.ts';
import { time } from '../core/format.ts';
import { useTyped } from '../core/typed.ts';
import { SameAs } from '../parts/command.tsx';
import { Field, Form, useAction } from '../parts/forms.tsx';
import { Card } from '../parts/layout.tsx';

/** The length of `2026-12-31T18:00`, which the field of the browser has as its value. */
const MINUTES_LENGTH = 16;

interface UntilProps {
  machine: CommunityMachine;
  changed(): void;
}

export function Until({ machine, changed }: UntilProps) {
  const { machine_id: id, rentable_until: now } = machine;
  const shown = now?.slice(0, MINUTES_LENGTH) ?? '';
  const [until, setUntil] = useTyped(`until/${id}`, shown);
  const path = `/v1/community/machines/${id}`;
  const body = { rentable_until: until === '' ? null : `${until}:00Z` };
  const change = useAction(async () => {
    await call('PATCH', path, body);
    changed();
  });
  return (
    <Card title="End of the offer" note={now === null ? 'none is set' : `${time(now)} UTC`}>
      <div class="pad stack">
        <Form
          action={change}
          submit={until === '' ? 'Offer it without an end' : 'Set the end'}
          busy="Changing…"
          isDisabled={until === shown}
        >
          <Field
            label="On offer until, in UTC"
            type="datetime-local"
            value={until}
            onValue={setUntil}
            rule={change.ruleOf('rentable_until')}
            hint="Only launches that end by then begin here. What runs goes on, and whoever rents the machine is told. Empty: no end."
          />
        </Form>
        <SameAs
          isLong
          cli={`svc machine change ${id} --until ${body.rentable_until ?? "''"}`}
          curl={{ method: 'PATCH', path, body }}
        />
      </div>
    </Card>
  );
}
