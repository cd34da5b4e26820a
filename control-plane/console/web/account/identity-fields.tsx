// The fields for e-mail, name and password, which sign-in, sign-up, invitations and a new password share.
import { Field } from '../parts/forms.tsx';

interface IdentityProps {
  value: string;
  onValue(value: string): void;
  /** The rule that the value breaks, which the field shows; undefined if it breaks none. */
  rule: string | undefined;
}

/** `fixed`: why the address cannot be changed; undefined if it can. */
export function Email({ fixed, ...props }: IdentityProps & { fixed?: string | undefined }) {
  const rest = fixed === undefined ? {} : { readOnly: true, hint: fixed };
  return <Field label="E-mail" type="email" autoComplete="username" required {...rest} {...props} />;
}

export function OwnName(props: IdentityProps) {
  return <Field label="Your name" autoComplete="name" required {...props} />;
}

/** `replaces`: the person has another password until now. */
export function NewPassword({ replaces = false, ...props }: IdentityProps & { replaces?: boolean }) {
  return (
    <Field
      label={replaces ? 'New password' : 'Password'}
      type="password"
      autoComplete="new-password"
      required
      minLength={12}
      {...props}
      hint="At least 12 characters"
    />
  );
}
