// Asks for a confirmation when the API wants one: before keys, payouts, members and approvals. Operators who have signed in without their second
// factor confirm with it.
import { signal } from '@preact/signals';
import { useEffect, useState } from 'preact/hooks';
import { onAsked, post } from '../core/api.ts';
import { askPasskey } from '../core/passkey.ts';
import { loadSession, session, signOut } from '../core/session.ts';
import { beginSingleSignOn } from '../core/single-sign-on.ts';
import { Dialog, Field, Form, useAction } from '../parts/forms.tsx';
import { Alone, Problem } from '../parts/layout.tsx';

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
    // The next person to sign in must not be asked to confirm what this one has decided.
    return () => {
      onAsked({ confirm: async () => false });
      answer(false);
    };
  }, []);
  return asked.value === undefined ? null : <Confirmation answer={answer} />;
}

function answer(isConfirmed: boolean): void {
  asked.value?.(isConfirmed);
  asked.value = undefined;
}

function Confirmation({ answer: done }: { answer(isConfirmed: boolean): void }) {
  return (
    <Dialog title="Confirm that it is you" close={() => done(false)}>
      <Ways confirmed={() => done(true)} cancel={() => done(false)} />
    </Dialog>
  );
}

/** An operator has a second factor, and has signed in without it: through the provider of single sign-on, for example. */
export function ConfirmFactor() {
  const leave = useAction(signOut);
  return (
    <Alone title="Confirm with your second factor">
      <p class="dim">You operate this installation. Your sign-in alone is not enough for that.</p>
      <Ways confirmed={() => void loadSession()} cancel={() => void leave.run()} />
      {leave.error !== undefined && <Problem error={leave.error} />}
    </Alone>
  );
}

/** All ways in which this person can confirm. A recovery code stands for any second factor. */
function Ways({ confirmed, cancel }: { confirmed(): void; cancel(): void }) {
  const { has_totp: hasApp = false, has_password: hasPassword = false, passkeys = 0 } = session.value ?? {};
  const hasCodes = hasApp || (passkeys > 0 && (session.value?.recovery_codes_left ?? 0) > 0);
  if (!hasApp && !hasPassword && passkeys === 0) return <SignInAgain cancel={cancel} />;
  return (
    <>
      {passkeys > 0 && <ByPasskey confirmed={confirmed} />}
      {(hasCodes || passkeys === 0) && (
        <ByText
          label={hasCodes ? 'Code' : 'Password'}
          hint={
            hasApp
              ? 'Six digits of your authenticator app, or a recovery code'
              : hasCodes
                ? 'A recovery code'
                : undefined
          }
          confirmed={confirmed}
          cancel={cancel}
        />
      )}
    </>
  );
}

interface Confirming {
  confirmed(): void;
}

/** A person without a password and without a second factor has nothing to confirm with. A new sign-in counts as a confirmation. */
function SignInAgain({ cancel }: { cancel(): void }) {
  const provider = useAction(beginSingleSignOn);
  return (
    <>
      <p class="dim">
        Your account has no password and no second factor. To confirm, sign in again. Then repeat what you did.
      </p>
      <button class="btn pri" type="button" disabled={provider.isBusy} onClick={() => void provider.run()}>
        Single sign-on
      </button>
      <button class="btn" type="button" onClick={cancel}>
        Cancel
      </button>
      {provider.error !== undefined && <Problem error={provider.error} />}
    </>
  );
}

function ByPasskey({ confirmed }: Confirming) {
  const action = useAction(async () => {
    await post('/v1/auth/step-up', { passkey: await askPasskey() });
    confirmed();
  });
  return (
    <>
      <button class="btn pri" type="button" disabled={action.isBusy} onClick={() => void action.run()}>
        {action.isBusy ? 'Waiting for your passkey…' : 'Confirm with a passkey'}
      </button>
      {action.error !== undefined && <Problem error={action.error} />}
    </>
  );
}

interface Typed extends Confirming {
  label: 'Code' | 'Password';
  hint: string | undefined;
  cancel(): void;
}

function ByText({ label, hint, confirmed, cancel }: Typed) {
  const [typed, setTyped] = useState('');
  const isCode = label === 'Code';
  const byText = useAction(async () => {
    await post('/v1/auth/step-up', isCode ? { code: typed } : { password: typed });
    confirmed();
  });
  return (
    <Form action={byText} submit="Confirm" busy="Confirming…" cancel={cancel}>
      <Field
        label={label}
        type={isCode ? 'text' : 'password'}
        autoComplete={isCode ? 'one-time-code' : 'current-password'}
        required
        value={typed}
        onValue={setTyped}
        hint={hint}
      />
    </Form>
  );
}
