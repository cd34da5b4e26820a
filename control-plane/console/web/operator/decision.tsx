// A decision of an operator about one row. A dialog explains the effect, asks for the fields of the request, and shows the same request as a
// command. The API writes the decision to the audit journal.
import { useState } from 'preact/hooks';
import { post } from '../core/api.ts';
import { capital, quoted } from '../core/format.ts';
import { isTyped, useTyped } from '../core/typed.ts';
import { SameAs } from '../parts/command.tsx';
import { Dialog, Field, Form, useAction } from '../parts/forms.tsx';
import { calledOf, type Row, type Verb } from './verbs.ts';

/** The kind of things that the decisions are about. */
export interface Decided {
  /** The path of their list, which begins with `/admin/v1/`. */
  path: string;
  /** The first words of their commands, like `svc-control-plane admin payout`. */
  command: string;
}

interface DecisionsProps extends Decided {
  verbs: readonly Verb[];
  row: Row;
  /** The id of the row. */
  id: string;
  decided(): Promise<void>;
}

/** A button for each decision that fits the row. */
export function Decisions({ verbs, row, id, ...about }: DecisionsProps) {
  // Keeps the row of the open dialog, because the table may read the row again meanwhile.
  const [asked, setAsked] = useState<{ verb: Verb; row: Row; id: string } | undefined>(() => {
    const verb = verbs.find((each) => isTyped(formOf(about, each, id)));
    return verb && { verb, row, id };
  });
  return (
    <div class="row">
      {verbs
        .filter(({ fits }) => fits === undefined || fits(row))
        .map((verb) => (
          <button key={verb.verb} class="btn sm" type="button" onClick={() => setAsked({ verb, row, id })}>
            {wordsOf(verb)}
            <span class="sr"> {id}</span>
          </button>
        ))}
      {asked !== undefined && <Decision {...about} {...asked} close={() => setAsked(undefined)} />}
    </div>
  );
}

/** The form in which something is decided about the row. */
const formOf = ({ path }: Decided, { verb }: Verb, id: string): string => `${path}/${id}/${verb}`;

interface DecisionProps extends Decided {
  verb: Verb;
  row: Row;
  id: string;
  close(): void;
  decided(): Promise<void>;
}

function Decision({ path, command, verb: decision, row, id, close, decided }: DecisionProps) {
  const { verb, says, takes = [] } = decision;
  const initial = Object.fromEntries(takes.map((each) => [each.field, each.initial?.(row) ?? '']));
  const [texts, setTexts] = useTyped<Record<string, string>>(formOf({ path, command }, decision, id), initial);
  // The command lines show dots for fields that are still empty.
  const bodyOf = (empty: string) =>
    takes.length === 0 ? undefined : Object.fromEntries(takes.map(({ field }) => [field, texts[field] || empty]));
  const target = `${path}/${encodeURIComponent(id)}/${verb}`;
  const action = useAction(async () => {
    await post(target, bodyOf(''));
    close();
    await decided();
  });
  const options = takes.map(({ field, option }) => ` --${option} ${quoted(texts[field] || '…')}`);
  return (
    <Dialog title={`${wordsOf(decision)} ${calledOf(row, id)}?`} close={close}>
      <p class="dim">{says} This stands in the audit journal under your address.</p>
      <Form action={action} submit={wordsOf(decision)} busy="Sending…" cancel={close}>
        {takes.map(({ field, label }) => (
          <Field
            key={field}
            label={label}
            required
            value={texts[field] ?? ''}
            onValue={(text) => setTexts({ ...texts, [field]: text })}
            rule={action.ruleOf(field)}
          />
        ))}
      </Form>
      <SameAs
        cli={`${command} ${verb} ${quoted(id)}${options.join('')}`}
        curl={{ method: 'POST', path: target, body: bodyOf('…') }}
      />
    </Dialog>
  );
}

function wordsOf({ verb, words = capital(verb) }: Verb): string {
  return words;
}
