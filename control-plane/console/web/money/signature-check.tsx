// A box in which a person checks the signature of a delivery that the person's own server has received.
import { useState } from 'preact/hooks';
import { serviceNow } from '../core/clock.ts';
import { Field, TextField } from '../parts/forms.tsx';
import { Note } from '../parts/layout.tsx';
import { checkSignature, type Verdict } from './signature.ts';

/** `sent`: the body of the shown delivery, with which the box begins. */
export function SignatureCheck({ sent }: { sent: string }) {
  const [body, setBody] = useState(sent);
  const [header, setHeader] = useState('');
  const [secret, setSecret] = useState('');
  const [verdict, setVerdict] = useState<Verdict>();
  const check = (event: Event): void => {
    event.preventDefault();
    void checkSignature({ body, header, secret }, serviceNow()).then(setVerdict);
  };
  return (
    <form class="stack tight" onSubmit={check}>
      <p class="small dim">The check is done in this browser. Nothing is sent.</p>
      <TextField label="Raw body" value={body} onValue={setBody} rows={4} />
      <Field
        label="Svc-Signature"
        required
        placeholder="t=1767225600,v1=4c19…"
        autocomplete="off"
        spellcheck={false}
        value={header}
        onValue={setHeader}
      />
      <Field
        label="Secret of the endpoint"
        type="password"
        required
        autocomplete="off"
        value={secret}
        onValue={setSecret}
      />
      <div class="row">
        <button class="btn" type="submit">
          Check the signature
        </button>
      </div>
      {verdict !== undefined && (
        <div role="status">
          <Note tone={verdict.isValid ? '' : 'bad'}>
            <span class="brk">{verdict.text}</span>
          </Note>
        </div>
      )}
    </form>
  );
}
