// What a person has typed into a form outlives the session and the page. After the next sign-in in this tab, the form has it again. Only this tab
// keeps it, and only for this person: a sign-out deletes it, and the sign-in of another person too.
//
// While the page lasts it is in memory. For the next page it is in the storage of the tab. A browser may write that to its disk, so secrets are left
// out there.
import { effect } from '@preact/signals';
import { type Dispatch, type StateUpdater, useEffect, useRef, useState } from 'preact/hooks';
import { onSignedOut, session } from './session.ts';

const KEPT = 'svc-typed';

interface Kept {
  /** Id of the person. */
  by: string;
  /** What was typed, by organisation and form. */
  forms: Record<string, unknown>;
}

/** The person whose forms are kept; no id after a sign-out. `forms` are those that this page keeps. */
const person: { id?: string | undefined; forms: Kept['forms'] } = { forms: {} };

/** Deletes what a person has typed when they sign out, or when somebody else signs in. */
export function followPerson(): void {
  effect(() => {
    const id = session.value?.user.id;
    if (id === undefined) return;
    if (person.id !== id) person.forms = {};
    person.id = id;
    if (stored().by !== id) sessionStorage.removeItem(KEPT);
  });
  onSignedOut(() => {
    person.id = undefined;
    person.forms = {};
    sessionStorage.removeItem(KEPT);
  });
}

/**
 * State of a form, or of one of its fields. It begins with what was typed before the session ended or the page was left, else with `initial`.
 * `withoutSecrets` makes the value for the next page.
 */
export function useTyped<T>(
  form: string,
  initial: T,
  withoutSecrets = (value: T): T => value,
): [T, Dispatch<StateUpdater<T>>] {
  const place = useRef(placeOf(form)).current;
  const [value, setValue] = useState<T>(() => take<T>(place) ?? initial);
  const latest = useRef(value);
  latest.current = value;
  useEffect(() => {
    const keep = (): void => {
      if (latest.current !== initial) change(place, withoutSecrets(latest.current));
    };
    addEventListener('pagehide', keep);
    return () => {
      removeEventListener('pagehide', keep);
      if (session.peek() === null) {
        keep();
        if (person.id !== undefined && latest.current !== initial) person.forms[place] = latest.current;
      }
      // The browser may have shown the page again after `pagehide`.
      else change(place, undefined);
    };
  }, []);
  return [value, setValue];
}

/** Whether something typed waits for this form. */
export function isTyped(form: string): boolean {
  return stored().forms[placeOf(form)] !== undefined;
}

/** A form of another organisation has other ids to choose from. */
function placeOf(form: string): string {
  return `${session.peek()?.org?.id ?? ''}/${form}`;
}

/** Is read once, so that a form that cannot show it works again after the next load of the page. */
function take<T>(place: string): T | undefined {
  const found = person.forms[place] ?? stored().forms[place];
  if (found !== undefined) change(place, undefined);
  delete person.forms[place];
  return found as T | undefined;
}

/** `undefined` deletes. */
function change(place: string, value: unknown): void {
  if (person.id === undefined) return;
  const kept: Kept = { by: person.id, forms: { ...stored().forms, [place]: value } };
  try {
    sessionStorage.setItem(KEPT, JSON.stringify(kept));
  } catch {
    // The storage of a tab is limited. What does not fit is not kept.
  }
}

function stored(): Kept {
  return JSON.parse(sessionStorage.getItem(KEPT) ?? '{"by":"","forms":{}}') as Kept;
}
