// A list of the operator's routes as a screen. Each decision asks for a confirmation first. The API writes it to the audit journal.
import type { ComponentChildren, ComponentType } from 'preact';
import { useLayoutEffect, useState } from 'preact/hooks';
import { useSearchParams } from 'wouter-preact';
import { useLiveList } from '../core/data.ts';
import { quoted } from '../core/format.ts';
import type { LiveList } from '../core/reading.ts';
import type { ScreenProps } from '../core/screen.ts';
import { SameAs } from '../parts/command.tsx';
import { Empty, Head } from '../parts/layout.tsx';
import { Segments } from '../parts/choosing.tsx';
import { type Column, LiveTable } from '../parts/table.tsx';
import { Decisions } from './decision.tsx';
import { factColumns } from './facts.tsx';
import { type Row, textOf, type Verb } from './verbs.ts';

const SEARCH_CHARS_MAX = 255;

/** A choice above the list: its text, the query that it adds to the path, and the same filter as options of the command. */
type Filter = readonly [words: string, query: string, options: string];

export interface Listing {
  title: string;
  path: string;
  /** The command for the same list, on the host of the control plane. The commands of decisions begin with its part before ` list`. */
  cli: string;
  /** The member that identifies a row. */
  id: string;
  /** Members of a row, in the order of the columns. The first one names the row. */
  columns: readonly string[];
  what: string;
  verbs?: readonly Verb[];
  /** What a search above the list looks at, like `name or id`. If it is left out, the list has no search. */
  searched?: string;
  /** Choices above the list. The first one is selected at first. */
  filters?: readonly Filter[];
  /** Address of the rows' own pages, which are `<page>/<id>`. If it is left out, rows have no pages. */
  page?: string;
}

export function listingScreen(listing: Listing): ComponentType<ScreenProps> {
  return () => <ListingView listing={listing} />;
}

export interface ListingProps {
  listing: Listing;
  /** Forms above the list. They call `reload` to read the list again. */
  above?: (reload: () => Promise<void>) => ComponentChildren;
  /** Buttons beside the title. They call `reload` to read the list again. */
  actions?: (reload: () => Promise<void>) => ComponentChildren;
}

/** The list with its filters and decisions. */
export function ListingView({ listing, above, actions }: ListingProps) {
  const { title, id, searched, filters = [] } = listing;
  const [chosen, setChosen] = useState(filters[0]?.[0] ?? '');
  const [address, setAddress] = useSearchParams();
  // The text stands in the address, so that Back and a reload keep it.
  const wanted = searched === undefined ? '' : (address.get('search') ?? '');
  const setWanted = (text: string): void => setAddress(text === '' ? {} : { search: text });
  const [, query = '', options = ''] = filters.find(([words]) => words === chosen) ?? [];
  const search = wanted === '' ? '' : `search=${encodeURIComponent(wanted)}`;
  const path = [listing.path, query, search].filter((part) => part !== '').join('&');
  const option = wanted === '' ? '' : `--search ${quoted(wanted)}`;
  const cli = [listing.cli, options, option].filter((part) => part !== '').join(' ');
  const list = useLiveList<Row>({ path, idOf: (row) => textOf(row[id]) });
  return (
    <>
      <Head title={title} same={{ cli, curl: { path } }}>
        {actions?.(list.reload)}
      </Head>
      {above?.(list.reload)}
      {searched !== undefined && <Search title={title} searched={searched} wanted={wanted} setWanted={setWanted} />}
      {filters.length > 0 && (
        <Segments
          label="Show"
          value={chosen}
          options={filters.map(([words]) => [words, words] as const)}
          onValue={setChosen}
        />
      )}
      <Rows listing={{ ...listing, path, cli }} list={list} wanted={wanted} />
    </>
  );
}

interface SearchProps {
  title: string;
  searched: string;
  /** The text that the list is searched for now; empty for the whole list. */
  wanted: string;
  setWanted(text: string): void;
}

/** Searches when it is sent. When the text is deleted, the whole list is shown again. */
function Search({ title, searched, wanted, setWanted }: SearchProps) {
  const [text, setText] = useState(wanted);
  // A later effect would delete what was typed since the field appeared.
  useLayoutEffect(() => setText(wanted), [wanted]);
  const change = (next: string): void => {
    setText(next);
    if (next === '' && wanted !== '') setWanted('');
  };
  const send = (event: Event): void => {
    event.preventDefault();
    setWanted(text);
  };
  return (
    <form class="row" role="search" aria-label={title} onSubmit={send}>
      <label class="find">
        <span class="sr">Search</span>
        <input
          type="search"
          maxLength={SEARCH_CHARS_MAX}
          placeholder={`Search by ${searched}`}
          value={text}
          onInput={(event) => change(event.currentTarget.value)}
        />
      </label>
      <button class="btn" type="submit">
        Search
      </button>
    </form>
  );
}

/** A list as a part of a page. */
export function ListingPart({ listing, actions }: Omit<ListingProps, 'above'>) {
  const { title, path, cli, id } = listing;
  const list = useLiveList<Row>({ path, idOf: (row) => textOf(row[id]) });
  return (
    <div class="stack tight">
      <div class="row far">
        <h2>{title}</h2>
        {actions?.(list.reload)}
      </div>
      <SameAs cli={cli} curl={{ path }} />
      <Rows listing={listing} list={list} wanted="" />
    </div>
  );
}

function Rows({ listing, list, wanted }: { listing: Listing; list: LiveList<Row>; wanted: string }) {
  const { title, path, cli, id, columns, page, what, searched = '', verbs = [] } = listing;
  const about = { path: path.replace(/\?.*/, ''), command: cli.replace(/ list.*/, '') };
  const decide: Column<Row> = {
    title: 'Decide',
    cell: (row) => <Decisions {...about} verbs={verbs} row={row} id={textOf(row[id])} decided={list.reload} />,
  };
  const pageOf = (row: Row): string => `${page}/${encodeURIComponent(textOf(row[id]))}`;
  const cells = factColumns(columns, page === undefined ? undefined : pageOf);
  return (
    <LiveTable
      caption={title}
      list={list}
      columns={verbs.length === 0 ? cells : [...cells, decide]}
      empty={
        <Empty title={wanted === '' ? 'Nothing here' : 'Nothing found'} cli={cli}>
          {wanted === '' ? what : `“${wanted}” is in no ${searched}.`}
        </Empty>
      }
    />
  );
}
