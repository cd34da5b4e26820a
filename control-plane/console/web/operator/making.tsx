// A dialog in which operators make something new. It asks for the fields, and shows the same request as a command while they are filled in. The
// API writes the action to the audit journal.
import { useState } from 'preact/hooks';
import { post } from '../core/api.ts';
import { isTyped, useTyped } from '../core/typed.ts';
import { SameAs } from '../parts/command.tsx';
import { Dialog, Field, Form, Select, useAction } from '../parts/forms.tsx';
import type { Row } from './verbs.ts';

/** The texts of the fields, by name. */
export type Texts = Readonly<Record<string, string>>;

interface MadeField {
  /** The member of the request. */
  field: string;
  label: string;
  hint?: string;
  isOptional?: boolean;
  /** Text that the command lines show while the field is empty; for an optional field it is empty. */
  example: string;
  /** If set, the field is a choice among these values, and the first one is selected at first. */
  choices?: readonly (readonly [value: string, label: string])[];
  /** The rule that the text breaks; undefined if the text is valid. */
  broken?(text: string): string | undefined;
}

export interface Making {
  /** Text of the button that opens the dialog, and title of the dialog. */
  words: string;
  says: string;
  fields: readonly MadeField[];
  requestOf(texts: Texts): { path: string; body: Row };
  lineOf(texts: Texts): string;
}

interface MakeProps {
  making: Making;
  /** Gets the answer of the API. */
  made(answer: Row): Promise<void> | void;
}

/** The button that opens the dialog. */
export function Make({ making, made }: MakeProps) {
  const [isAsking, setAsking] = useState(isTyped(formOf(making)));
  return (
    <>
      <button class="btn" type="button" onClick={() => setAsking(true)}>
        {making.words}
      </button>
      {isAsking && <MakeDialog making={making} made={made} close={() => setAsking(false)} />}
    </>
  );
}

/** The form of this dialog. The same words may stand on the page of each organisation. */
const formOf = ({ words }: Making): string => `${location.pathname}/${words}`;

function MakeDialog({ making, made, close }: MakeProps & { close(): void }) {
  const { words, says, fields, requestOf, lineOf } = making;
  const initial = Object.fromEntries(fields.map((each) => [each.field, each.choices?.[0]?.[0] ?? '']));
  const [texts, setTexts] = useTyped<Texts>(formOf(making), initial);
  const brokenOf = ({ field, broken }: MadeField): string | undefined =>
    texts[field] === '' ? undefined : broken?.(texts[field] ?? '');
  const action = useAction(async () => {
    const { path, body } = requestOf(texts);
    const answer = await post<Row>(path, body);
    close();
    await made(answer);
  });
  // For a field that is empty or breaks its rule, the command lines show its example.
  const shown = Object.fromEntries(
    fields.map((each) => {
      const text = texts[each.field] ?? '';
      return [each.field, text === '' || brokenOf(each) !== undefined ? each.example : text];
    }),
  );
  const { path, body } = requestOf(shown);
  return (
    <Dialog title={words} close={close}>
      <p class="dim">{says} This stands in the audit journal under your address.</p>
      <Form
        action={action}
        submit={words}
        busy="Sending…"
        isDisabled={fields.some((each) => brokenOf(each) !== undefined)}
        cancel={close}
      >
        {fields.map((each) => {
          const { field, label, hint, isOptional, choices } = each;
          const common = {
            label,
            hint,
            value: texts[field] ?? '',
            onValue: (text: string) => setTexts({ ...texts, [field]: text }),
            rule: brokenOf(each) ?? action.ruleOf(field),
          };
          if (choices !== undefined) return <Select key={field} {...common} options={choices} />;
          return <Field key={field} {...common} required={isOptional !== true} />;
        })}
      </Form>
      <SameAs isLong cli={lineOf(shown)} curl={{ method: 'POST', path, body }} />
    </Dialog>
  );
}
