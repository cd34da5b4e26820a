// The frame of every screen: navigation, balance, search by page, and who has signed in.
import type { ComponentChildren } from 'preact';
import { useEffect, useRef, useState } from 'preact/hooks';
import { Link, useLocation } from 'wouter-preact';
import type { Org } from '../../../shared/api/account.ts';
import type { Balance } from '../../../shared/api/billing.ts';
import { useResource } from './core/data.ts';
import { dollars, duration, time } from './core/format.ts';
import { isLive, startLive } from './core/live.ts';
import { GROUPS, type Screen } from './core/screen.ts';
import { may, session, signOut, switchOrg } from './core/session.ts';
import { useAction } from './parts/forms.tsx';
import { Mark, Note, Problem } from './parts/layout.tsx';
import { SCREENS } from './screens.ts';

const BALANCE_MS = 30_000;

export function Shell({ screen, children }: { screen: Screen; children: ComponentChildren }) {
  const id = session.value?.id;
  useEffect(() => {
    if (id === undefined || !may('events: read')) return undefined;
    const stop = new AbortController();
    startLive(id, stop.signal);
    return () => stop.abort();
  }, [id]);
  return (
    <div class="shell">
      <a class="skip" href="#main">
        Skip to content
      </a>
      <Nav screen={screen} />
      <Top />
      <main id="main">
        {may('events: read') && <Suspension />}
        {children}
      </main>
      <Hatches />
    </div>
  );
}

/** Says on every screen why the organisation can start nothing. */
function Suspension() {
  const { data } = useResource<Org>('/v1/organisation', { on: [{ type: 'org' }] });
  const { suspended_at: since, suspended_reason: reason } = data.value ?? {};
  if (since === undefined || since === null) return null;
  return (
    <Note tone="warn">
      The operator has suspended this organisation since {time(since)} UTC: {reason}. What runs goes on and costs money.
      Nothing that costs money can be started. Ask the operator.
    </Note>
  );
}

function Nav({ screen }: { screen: Screen }) {
  const ref = useRef<HTMLElement>(null);
  useEffect(() => {
    if (ref.current?.matches(':popover-open') === true) ref.current.hidePopover();
  }, [screen]);
  return (
    <nav class="side" id="nav" popover="auto" aria-label="Console" ref={ref}>
      <Mark />
      {GROUPS.map((group) => {
        const entries = listed().filter((each) => each.group === group);
        return (
          entries.length > 0 && (
            <>
              <p>{group}</p>
              <ul aria-label={group}>
                {entries.map(({ path, title }) => (
                  <li key={path}>
                    <Link href={path} aria-current={screen.path.startsWith(path) ? 'page' : undefined}>
                      {title}
                    </Link>
                  </li>
                ))}
              </ul>
            </>
          )
        );
      })}
    </nav>
  );
}

function Top() {
  return (
    <header class="top">
      <button class="btn bare menu" type="button" popovertarget="nav" aria-label="Menu">
        <svg
          width="16"
          height="16"
          viewBox="0 0 16 16"
          fill="none"
          stroke="currentColor"
          stroke-width="1.5"
          aria-hidden="true"
        >
          <path d="M1 4h14M1 8h14M1 12h14" />
        </svg>
      </button>
      <Mark />
      <Palette />
      <span class="push" />
      {may('billing: read') && <Gauge />}
      <Who />
    </header>
  );
}

/** Goes to a page by its title, or to an instance by its id. */
function Palette() {
  const [text, setText] = useState('');
  const [, goTo] = useLocation();
  const input = useRef<HTMLInputElement>(null);
  useEffect(() => {
    const onKey = (event: KeyboardEvent): void => {
      if (event.key !== 'k' || !(event.metaKey || event.ctrlKey)) return;
      event.preventDefault();
      input.current?.focus();
    };
    addEventListener('keydown', onKey);
    return () => removeEventListener('keydown', onKey);
  }, []);
  const find = (event: Event): void => {
    event.preventDefault();
    const target = targetOf(text);
    if (target === undefined) return;
    setText('');
    goTo(target);
  };
  return (
    <form class="find" role="search" onSubmit={find}>
      <input
        ref={input}
        type="search"
        list="pages"
        aria-label="Go to a page or id"
        placeholder="Go to a page or id"
        value={text}
        onInput={(event) => setText(event.currentTarget.value)}
      />
      <kbd aria-hidden="true">⌘ K</kbd>
      <datalist id="pages">
        {listed().map(({ title }) => (
          <option key={title} value={title} />
        ))}
      </datalist>
    </form>
  );
}

/** The address of the screen with this instance id, or with a title that begins with this text; undefined if there is none. */
function targetOf(text: string): string | undefined {
  const wanted = text.trim().toLowerCase();
  if (wanted === '') return undefined;
  if (/^(inst|i)[_-]/.test(wanted)) return `/console/instances/${encodeURIComponent(wanted)}`;
  return listed().find(({ title }) => title.toLowerCase().startsWith(wanted))?.path;
}

function listed(): Screen[] {
  return SCREENS.filter(({ group, scope }) => group !== undefined && (scope === undefined || may(scope)));
}

/** The balance, the spending per hour, and how long the balance lasts. */
function Gauge() {
  const { data } = useResource<Balance>('/v1/balance', {
    on: [{ type: 'instance' }, { type: 'deposit' }],
    everyMs: BALANCE_MS,
  });
  const balance = data.value;
  if (balance === undefined) return <span class="gauge" aria-busy="true" />;
  const { available, burn_rate_per_hour: burn, hours_left: hours } = balance;
  return (
    <Link class="gauge" href="/console/usage">
      <b>{dollars(available)}</b>
      {Number(burn) > 0 && <span class="w">spending {dollars(burn)}/h</span>}
      {hours !== null && <span class={hours < 6 ? 'warn' : ''}>{duration(hours * 3_600)} left</span>}
    </Link>
  );
}

function Who() {
  const current = session.value;
  if (current === null || current === undefined) return null;
  const name = current.org?.name ?? current.user.name;
  const others = current.orgs.filter(({ id }) => id !== current.org?.id);
  return (
    <>
      <button class="btn bare" type="button" popovertarget="who">
        <span class="w name" title={name}>
          {name}
        </span>{' '}
        ▾
      </button>
      <div class="pop" id="who" popover="auto">
        <p class="small quiet">
          {current.user.email}
          {current.org !== null && `, ${current.org.role}`}
          {isLive.value ? ', live' : ''}
        </p>
        <ul>
          {others.map(({ id, name: other }) => (
            <Choice key={id} words={`Switch to ${other}`} work={() => switchOrg(id)} />
          ))}
          <li>
            <Link class="btn bare" href="/console/security">
              Sign-in and security
            </Link>
          </li>
          <li>
            <a class="btn bare" href="/docs">
              Manual
            </a>
          </li>
          <Choice words="Sign out" work={signOut} />
        </ul>
      </div>
    </>
  );
}

/** A line of the menu that sends something. A refusal stands below it. */
function Choice({ words, work }: { words: string; work(): Promise<void> }) {
  const action = useAction(work);
  return (
    <li>
      <button class="btn bare" type="button" disabled={action.isBusy} onClick={() => void action.run()}>
        {words}
      </button>
      {action.error !== undefined && <Problem error={action.error} />}
    </li>
  );
}

/** The two hatches of all ribbons: free time, and outages. */
function Hatches() {
  return (
    <svg width="0" height="0" aria-hidden="true">
      <defs>
        {(['free', 'out'] as const).map((id) => (
          <pattern key={id} id={id} width="5" height="5" patternUnits="userSpaceOnUse" patternTransform="rotate(45)">
            <path class={id === 'free' ? 'h1' : 'h2'} d="M2.5 0V5" />
          </pattern>
        ))}
      </defs>
    </svg>
  );
}
