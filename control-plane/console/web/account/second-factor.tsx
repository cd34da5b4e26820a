// Sets up a second factor: a passkey or an authenticator app. Operators must do this before they see any other screen.
import { useState } from 'preact/hooks';
import { post } from '../core/api.ts';
import { addPasskey } from '../core/passkey.ts';
import { loadSession, session } from '../core/session.ts';
import { Copy } from '../parts/command.tsx';
import { Field, Form, useAction } from '../parts/forms.tsx';
import { Alone, Card, Note, Problem } from '../parts/layout.tsx';
import { QrCode } from '../parts/qr-code.tsx';
import { ConfirmFactor, StepUp } from './step-up.tsx';

export function SecondFactor() {
  const { has_totp: hasApp = false, passkeys = 0 } = session.value ?? {};
  if (hasApp || passkeys > 0) return <ConfirmFactor />;
  return (
    <Alone title="Set up a second factor">
      <p class="dim">You operate this installation. A password alone is not enough for that.</p>
      <AddFactors />
      <StepUp />
    </Alone>
  );
}

/** Offers a passkey and an app. With the first factor, it shows the recovery codes. `added` is called once the session has the new factor. */
export function AddFactors({ added }: { added?: () => void }) {
  const [codes, setCodes] = useState<string[]>();
  const leave = async (): Promise<void> => {
    await loadSession();
    added?.();
  };
  if (codes !== undefined) return <RecoveryCodes codes={codes} done={() => void leave()} />;
  const finish = async (made: string[]): Promise<void> => (made.length > 0 ? setCodes(made) : leave());
  return (
    <>
      <AddPasskey done={finish} />
      <AddApp done={finish} />
    </>
  );
}

interface Done {
  done(recoveryCodes: string[]): Promise<void>;
}

function AddPasskey({ done }: Done) {
  const [name, setName] = useState('');
  const action = useAction(async () => done((await addPasskey(name)).recovery_codes));
  return (
    <Card title="Passkey" note="This device, a phone or a security key">
      <div class="pad">
        <Form action={action} submit="Add a passkey" busy="Waiting for your passkey…">
          <Field
            label="Name"
            required
            value={name}
            onValue={setName}
            rule={action.ruleOf('name')}
            hint="For your list, like MacBook"
          />
        </Form>
      </div>
    </Card>
  );
}

function AddApp({ done }: Done) {
  const [app, setApp] = useState<{ secret: string; uri: string }>();
  const [code, setCode] = useState('');
  const begin = useAction(async () => setApp(await post('/v1/auth/totp')));
  const confirm = useAction(async () => {
    const { recovery_codes: codes } = await post<{ recovery_codes: string[] }>('/v1/auth/totp/confirm', { code });
    await done(codes);
  });
  return (
    <Card title="Authenticator app" note="Six digits that change each 30 seconds">
      <div class="pad stack">
        {app === undefined ? (
          <Form action={begin} submit="Set up an app" busy="Making a secret…" />
        ) : (
          <>
            <QrCode text={app.uri} label="Secret of the authenticator app" />
            <Copy text={app.secret} what="the secret" />
            <Form action={confirm} submit="Confirm" busy="Confirming…">
              <Field
                label="Code"
                autoComplete="one-time-code"
                required
                value={code}
                onValue={setCode}
                rule={confirm.ruleOf('code')}
                hint="What the app shows now"
              />
            </Form>
          </>
        )}
        {begin.error !== undefined && app !== undefined && <Problem error={begin.error} />}
      </div>
    </Card>
  );
}

export function RecoveryCodes({ codes, done }: { codes: readonly string[]; done(): void }) {
  return (
    <Card title="Recovery codes" note="Shown only now">
      <div class="pad stack">
        <Note tone="warn">Keep these codes in a safe place. Each replaces your second factor once.</Note>
        <Copy text={codes.join('\n')} what="the recovery codes" />
        <button class="btn pri" type="button" onClick={done}>
          I have kept them
        </button>
      </div>
    </Card>
  );
}
