// A list of the operator's routes as a screen. What changes something asks first; the API keeps it in the audit journal.
import type { ComponentType } from 'preact';
import { useState } from 'preact/hooks';
import { post } from '../core/api.ts';
import { type LiveList, useLiveList } from '../core/data.ts';
import type { ScreenProps } from '../core/screen.ts';
import { Copy } from '../parts/command.tsx';
import { Dialog, Field, Form, useAction } from '../parts/forms.tsx';
import { Empty, Head } from '../parts/layout.tsx';
import { type Column, LiveTable } from '../parts/table.tsx';

/** A decision about a row: `POST <list>/<id>/<verb>`. */
interface Verb {
  verb: string;
  /** What follows from it. */
  says: string;
  /** It takes a text of this name. */
  takes?: 'note' | 'reason';
}

export interface Listing {
  title: string;
  path: string;
  /** The same on the machine of the control plane. */
  cli: string;
  /** The member that identifies a row. */
  id: string;
  /** Members of a row, in the order of the columns. The first one names the row. */
  columns: readonly string[];
  what: string;
  verbs?: readonly Verb[];
}

type Row = Record<string, unknown>;

export function listingScreen(listing: Listing): ComponentType<ScreenProps> {
  return () => <ListingView listing={listing} />;
}

function ListingView({ listing }: { listing: Listing }) {
  const { title, path, cli, id, columns, what, verbs = [] } = listing;
  const list = useLiveList<Row>({ path, idOf: (row) => textOf(row[id]) });
  const [asked, setAsked] = useState<{ verb: Verb; row: Row }>();
  const cells = columns.map((name, index): Column<Row> => {
    const words = name.replaceAll('_', ' ');
    return {
      title: words.charAt(0).toUpperCase() + words.slice(1),
      class: index < 2 ? '' : 'w',
      cell: (row) => <span class="brk">{textOf(row[name])}</span>,
    };
  });
  const decide: Column<Row> = {
    title: 'Decide',
    cell: (row) => (
      <div class="row">
        {verbs.map((verb) => (
          <button key={verb.verb} class="btn sm" type="button" onClick={() => setAsked({ verb, row })}>
            {capital(verb.verb)}
            <span class="sr"> {textOf(row[id])}</span>
          </button>
        ))}
      </div>
    ),
  };
  return (
    <>
      <Head title={title} />
      <Copy text={cli} what="the command" />
      <LiveTable
        caption={title}
        list={list}
        columns={verbs.length === 0 ? cells : [...cells, decide]}
        empty={
          <Empty title="Nothing here" cli={cli}>
            {what}
          </Empty>
        }
      />
      {asked !== undefined && (
        <Decision
          path={path}
          list={list}
          verb={asked.verb}
          id={textOf(asked.row[id])}
          close={() => setAsked(undefined)}
        />
      )}
    </>
  );
}

interface DecisionProps {
  path: string;
  list: LiveList<Row>;
  verb: Verb;
  id: string;
  close(): void;
}

function Decision({ path, list, verb: { verb, says, takes }, id, close }: DecisionProps) {
  const [text, setText] = useState('');
  const action = useAction(async () => {
    await post(
      `${path.replace(/\?.*/, '')}/${encodeURIComponent(id)}/${verb}`,
      takes === undefined ? undefined : { [takes]: text },
    );
    close();
    await list.reload();
  });
  return (
    <Dialog title={`${capital(verb)} ${id}?`} close={close}>
      <p class="dim">{says} It stands in the audit journal under your address.</p>
      <Form action={action} submit={capital(verb)} busy="Sending…" cancel={close}>
        {takes !== undefined && (
          <Field label={capital(takes)} required value={text} onValue={setText} rule={action.ruleOf(takes)} />
        )}
      </Form>
    </Dialog>
  );
}

function capital(word: string): string {
  return word.charAt(0).toUpperCase() + word.slice(1);
}

function textOf(value: unknown): string {
  if (value === null || value === undefined) return '';
  if (Array.isArray(value)) return value.map(textOf).join(', ');
  return typeof value === 'string' ? value : JSON.stringify(value);
}
