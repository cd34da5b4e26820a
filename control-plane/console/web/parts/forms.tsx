// Forms: fields, actions that are sent once at a time, and dialogs. A refused field shows the rule that it breaks.
import type { ComponentChildren, JSX } from 'preact';
import { useEffect, useId, useRef, useState } from 'preact/hooks';
import { useLocation } from 'wouter-preact';
import { ApiError, messageBelow } from '../core/api.ts';
import { holdFocus } from './focus.ts';
import { Problem } from './layout.tsx';

export interface Action {
  isBusy: boolean;
  error: ApiError | undefined;
  /** The rule that a field breaks, in the words of the API; undefined if it breaks none. Whoever asks shows the rule at the field. */
  ruleOf(field: string): string | undefined;
  /** What the form says of `error`. It does not repeat the rules that its fields show. */
  message(): string | undefined;
  run(): Promise<void>;
}

/** What an action may do on the screen where it began. */
export interface OnScreen {
  /** False once the person has gone to another screen. */
  isHere(): boolean;
  /** Leads to a screen. It does nothing if the person has gone to another one. */
  goTo(path: string): void;
}

/** Sends one decision at a time. A second click does nothing while the first is under way. */
export function useAction(work: (here: OnScreen) => Promise<void>): Action {
  const [, navigate] = useLocation();
  const [isBusy, setBusy] = useState(false);
  const [error, setError] = useState<ApiError>();
  const busy = useRef(false);
  const shown = useRef(new Set<string>());
  return {
    isBusy,
    error,
    ruleOf: (field) => {
      shown.current.add(field);
      return error?.errors.find((each) => each.field === field)?.rule;
    },
    message: () => error && messageBelow(error, shown.current),
    run: async () => {
      if (busy.current) return;
      busy.current = true;
      const giveFocusBack = holdFocus();
      setBusy(true);
      setError(undefined);
      const { pathname } = location;
      const isHere = (): boolean => location.pathname === pathname;
      try {
        await work({ isHere, goTo: (path) => isHere() && navigate(path) });
      } catch (failure) {
        if (!(failure instanceof ApiError)) throw failure;
        setError(failure);
      } finally {
        busy.current = false;
        setBusy(false);
        giveFocusBack();
      }
    },
  };
}

interface FieldProps extends Omit<JSX.InputHTMLAttributes<HTMLInputElement>, 'onInput' | 'label'> {
  label: string;
  value: string;
  onValue(value: string): void;
  hint?: ComponentChildren;
  /** The rule that the value breaks. */
  rule?: string | undefined;
}

export function Field({ label, value, onValue, hint, rule, ...input }: FieldProps) {
  const id = useId();
  return (
    <label class="field">
      <span id={nameOf(id)}>{label}</span>
      <input
        {...input}
        value={value}
        {...spoken(id, { isDescribed: hint !== undefined, rule })}
        onInput={(event) => onValue(event.currentTarget.value)}
      />
      <Below id={id} label={label} hint={hint} rule={rule} />
    </label>
  );
}

interface SelectProps<T extends string> {
  label: string;
  value: T;
  options: readonly (readonly [value: T, label: string])[];
  onValue(value: T): void;
  hint?: ComponentChildren;
  /** The rule that the value breaks. */
  rule?: string | undefined;
}

export function Select<T extends string>({ label, value, options, onValue, hint, rule }: SelectProps<T>) {
  const id = useId();
  return (
    <label class="field">
      <span id={nameOf(id)}>{label}</span>
      <select
        value={value}
        {...spoken(id, { isDescribed: hint !== undefined, rule })}
        onChange={(event) => onValue(event.currentTarget.value as T)}
      >
        {options.map(([each, text]) => (
          <option key={each} value={each}>
            {text}
          </option>
        ))}
      </select>
      <Below id={id} label={label} hint={hint} rule={rule} />
    </label>
  );
}

/** What a screen reader says of a field: its label, then what stands below it. Without a name of its own, the label would contain both. */
export function spoken(
  id: string,
  { isDescribed, rule }: { isDescribed: boolean; rule: string | undefined },
): Pick<JSX.AriaAttributes, 'aria-labelledby' | 'aria-invalid' | 'aria-describedby'> {
  return {
    'aria-labelledby': nameOf(id),
    'aria-invalid': rule !== undefined,
    'aria-describedby': isDescribed || rule !== undefined ? id : undefined,
  };
}

/** The id of the label of a field. */
export function nameOf(id: string): string {
  return `${id}-name`;
}

interface BelowProps {
  id: string;
  label: string;
  hint: ComponentChildren;
  rule: string | undefined;
}

function Below({ id, label, hint, rule }: BelowProps) {
  if (rule === undefined) return hint === undefined ? null : <small id={id}>{hint}</small>;
  return (
    <small class="err" id={id}>
      {label} {rule}
    </small>
  );
}

interface TextProps {
  label: string;
  value: string;
  onValue(value: string): void;
  rows?: number;
  placeholder?: string;
  hint?: ComponentChildren;
  rule?: string | undefined;
  /** Called on Ctrl+Enter or Command+Enter. */
  onSend?: () => void;
}

/** A field of several lines. */
export function TextField({ label, value, onValue, rows = 3, placeholder, hint, rule, onSend }: TextProps) {
  const id = useId();
  return (
    <label class="field">
      <span id={nameOf(id)}>{label}</span>
      <textarea
        rows={rows}
        placeholder={placeholder}
        value={value}
        {...spoken(id, { isDescribed: hint !== undefined, rule })}
        onInput={(event) => onValue(event.currentTarget.value)}
        onKeyDown={(event) => {
          if (event.key !== 'Enter' || !(event.metaKey || event.ctrlKey)) return;
          event.preventDefault();
          onSend?.();
        }}
      />
      <Below id={id} label={label} hint={hint} rule={rule} />
    </label>
  );
}

interface FormProps {
  action: Action;
  /** The words of the button; while it is sent, `busy` (like "Signing in…"). */
  submit: string;
  busy: string;
  isDisabled?: boolean;
  tone?: 'kill';
  /** A second button, which leaves the form. */
  cancel?: () => void;
  children?: ComponentChildren;
}

/** Fields above one button. The refusal of the API stands between them. */
export function Form({ action, submit, busy, isDisabled = false, tone, cancel, children }: FormProps) {
  const send = (event: Event): void => {
    event.preventDefault();
    void action.run();
  };
  return (
    <form class="stack" onSubmit={send}>
      {children}
      {action.error !== undefined && <Problem error={action.error} message={action.message()} />}
      <div class="row">
        <button class={`btn pri ${tone ?? ''}`} type="submit" disabled={isDisabled || action.isBusy}>
          {action.isBusy ? busy : submit}
        </button>
        {cancel !== undefined && (
          <button class="btn" type="button" onClick={cancel}>
            Cancel
          </button>
        )}
      </div>
    </form>
  );
}

/** Modal while it is shown. Escape closes it. Then the element that has opened it has the focus again. */
export function Dialog({ title, close, children }: { title: string; close(): void; children: ComponentChildren }) {
  const ref = useRef<HTMLDialogElement>(null);
  const id = useId();
  useEffect(() => {
    const giveFocusBack = holdFocus();
    ref.current?.showModal();
    return giveFocusBack;
  }, []);
  return (
    <dialog ref={ref} aria-labelledby={id} onClose={close}>
      <div>
        <h2 id={id}>{title}</h2>
        {children}
      </div>
    </dialog>
  );
}
