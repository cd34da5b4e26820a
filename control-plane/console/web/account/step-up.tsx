// Asks for a confirmation when the API wants one: before keys, payouts, members and approvals.
import { signal } from '@preact/signals';
import { useEffect, useState } from 'preact/hooks';
import { onAsked, post } from '../core/api.ts';
import { askPasskey } from '../core/passkey.ts';
import { session } from '../core/session.ts';
import { Dialog, Field, Form, useAction } from '../parts/forms.tsx';
import { Problem } from '../parts/layout.tsx';

/** Function that ends the wait of the request that needs a confirmation; undefined if no request waits. */
const asked = signal<((isConfirmed: boolean) => void) | undefined>(undefined);

export function StepUp() {
  useEffect(() => {
    onAsked({
      confirm: () =>
        new Promise<boolean>((resolve) => {
          asked.value?.(false);
          asked.value = resolve;
        }),
    });
  }, []);
  return asked.value === undefined ? null : <Confirmation answer={answer} />;
}

function answer(isConfirmed: boolean): void {
  asked.value?.(isConfirmed);
  asked.value = undefined;
}

function Confirmation({ answer: done }: { answer(isConfirmed: boolean): void }) {
  const [typed, setTyped] = useState('');
  const hasCode = session.value?.has_totp === true;
  const hasPasskey = (session.value?.passkeys ?? 0) > 0;
  const byText = useAction(async () => {
    await post('/v1/auth/step-up', hasCode ? { code: typed } : { password: typed });
    done(true);
  });
  const byPasskey = useAction(async () => {
    await post('/v1/auth/step-up', { passkey: await askPasskey() });
    done(true);
  });
  return (
    <Dialog title="Confirm that it is you" close={() => done(false)}>
      {hasPasskey && (
        <button class="btn pri" type="button" disabled={byPasskey.isBusy} onClick={() => void byPasskey.run()}>
          {byPasskey.isBusy ? 'Waiting for your passkey…' : 'Confirm with a passkey'}
        </button>
      )}
      {byPasskey.error !== undefined && <Problem error={byPasskey.error} />}
      {(hasCode || !hasPasskey) && (
        <Form action={byText} submit="Confirm" busy="Confirming…" cancel={() => done(false)}>
          <Field
            label={hasCode ? 'Code' : 'Password'}
            type={hasCode ? 'text' : 'password'}
            autoComplete={hasCode ? 'one-time-code' : 'current-password'}
            required
            value={typed}
            onValue={setTyped}
            hint={hasCode ? 'Six digits of your authenticator app, or a recovery code' : undefined}
          />
        </Form>
      )}
    </Dialog>
  );
}
