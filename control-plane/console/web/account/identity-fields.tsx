// The fields for e-mail, name and password, which sign-in, sign-up, invitations and a new password share.
import { Field } from '../parts/forms.tsx';

interface IdentityProps {
  value: string;
  onValue(value: string): void;
  /** The rule that the value breaks, which the field shows; undefined if it breaks none. */
  rule: string | undefined;
}

export function Email(props: IdentityProps) {
  return <Field label="E-mail" type="email" autoComplete="username" required {...props} />;
}

export function OwnName(props: IdentityProps) {
  return <Field label="Your name" autoComplete="name" required {...props} />;
}

export function NewPassword(props: IdentityProps) {
  return (
    <Field
      label="Password"
      type="password"
      autoComplete="new-password"
      required
      minLength={12}
      {...props}
      hint="At least 12 characters"
    />
  );
}
