// The pieces every screen is made of: title, card, figures, notices, refusals of the API, and what a list shows while it is empty.
import type { ComponentChildren } from 'preact';
import { Link } from 'wouter-preact';
import type { ApiError } from '../core/api.ts';
import { type Same, SameAs } from './command.tsx';

export type Tone = 'ok' | 'info' | 'warn' | 'bad' | '';

interface HeadProps {
  title: string;
  /** Links above the title to the screens above this one. */
  crumb?: ComponentChildren;
  /** The request with which the screen reads its data, as a command. */
  same?: Same;
  /** Buttons. At most one is primary. */
  children?: ComponentChildren;
}

export function Head({ title, crumb, same, children }: HeadProps) {
  return (
    <>
      <header class="head">
        <div>
          {crumb !== undefined && <p class="crumb">{crumb}</p>}
          <h1>{title}</h1>
        </div>
        {children !== undefined && <div class="row">{children}</div>}
      </header>
      {same !== undefined && <SameAs {...same} />}
    </>
  );
}

interface CardProps {
  title?: string;
  /** A line beside the title. */
  note?: ComponentChildren;
  /** Buttons or links at the end of the title's line. */
  actions?: ComponentChildren;
  footer?: ComponentChildren;
  children: ComponentChildren;
}

export function Card({ title, note, actions, footer, children }: CardProps) {
  return (
    <section class="card" aria-label={title}>
      {title !== undefined && (
        <header>
          <h2>{title}</h2>
          {note !== undefined && <p>{note}</p>}
          {actions}
        </header>
      )}
      {children}
      {footer !== undefined && footer !== false && <footer>{footer}</footer>}
    </section>
  );
}

export interface Figure {
  label: string;
  value: ComponentChildren;
  /** Explanation below the value: a limit, a time or a comparison. */
  small?: ComponentChildren;
  tone?: Tone;
}

/** A row has at most five figures. */
export function Figures({ figures }: { figures: readonly Figure[] }) {
  return (
    <section class="card" aria-label="Figures">
      <dl class="stats">
        {figures.map(({ label, value, small, tone }) => (
          <div key={label}>
            <dt>{label}</dt>
            <dd>
              {value}
              {small !== undefined && <small class={tone}>{small}</small>}
            </dd>
          </div>
        ))}
      </dl>
    </section>
  );
}

interface NoteProps {
  tone?: Tone | 'plain';
  action?: ComponentChildren;
  children: ComponentChildren;
}

/** A notice: what is wrong or needs attention, what follows from it, and at most one action. */
export function Note({ tone = '', action, children }: NoteProps) {
  return (
    <div class={`note ${tone}`} role={tone === 'bad' ? 'alert' : undefined}>
      <div>{children}</div>
      {action}
    </div>
  );
}

/** Refusals that end with a deposit. */
const NEEDS_MONEY: readonly string[] = ['insufficient_balance', 'org_unfunded'];

interface ProblemProps {
  error: ApiError;
  /** What is said in place of the text of the refusal. */
  message?: string | undefined;
  retry?: () => void;
}

/** A refusal of the API: its text, its code, and the id with which the operator finds the request in the log. */
export function Problem({ error, message = error.message, retry }: ProblemProps) {
  return (
    <div class="note bad" role="alert">
      <div>
        <p>{message}</p>
        <p class="small">
          <code>{error.code}</code>
          {error.requestId !== undefined && (
            <>
              {' · request '}
              <code>{error.requestId}</code>
            </>
          )}
        </p>
        {NEEDS_MONEY.includes(error.code) && <Link href="/console/usage">Add to the balance</Link>}
      </div>
      {retry !== undefined && (
        <button class="btn" type="button" onClick={retry}>
          Try again
        </button>
      )}
    </div>
  );
}

interface EmptyProps {
  title: string;
  action?: ComponentChildren;
  cli?: string;
  children: ComponentChildren;
}

/** Shown in place of an empty list: what the list is for, how to begin, and the command for that. */
export function Empty({ title, action, cli, children }: EmptyProps) {
  return (
    <div class="empty">
      <h2>{title}</h2>
      <p class="dim">{children}</p>
      {action}
      {cli !== undefined && (
        <p class="small quiet">
          On a command line: <code>{cli}</code>
        </p>
      )}
    </div>
  );
}

/** A page without the frame of the console: sign-in, links and approvals. */
export function Alone({ title, children }: { title: string; children?: ComponentChildren }) {
  return (
    <main class="alone">
      <Mark />
      <h1>{title}</h1>
      {children}
    </main>
  );
}

export function Mark() {
  return (
    <a class="mark" href="/console" aria-label="svc, start">
      <svg viewBox="0 0 16 16" aria-hidden="true">
        <rect width="7" height="16" rx="1.5" fill="currentColor" />
        <rect x="9" width="7" height="7" rx="1.5" fill="currentColor" />
        <rect x="9.75" y="9.75" width="5.5" height="5.5" rx="1" fill="none" stroke="currentColor" stroke-width="1.5" />
      </svg>
      svc
    </a>
  );
}

/** A state. Its shape and word are enough to read it; the colour only adds to them. */
export function Badge({ tone, children }: { tone: Tone; children: ComponentChildren }) {
  return <span class={`badge ${tone}`}>{children}</span>;
}

/** A fact about something that is not its state. A state is a `Badge`. */
export function Tag({ tone = '', children }: { tone?: Tone; children: ComponentChildren }) {
  return <span class={`tag ${tone}`}>{children}</span>;
}
