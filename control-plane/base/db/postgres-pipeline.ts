// Sends statements of a connection together, and reads their answers together.
//
// The driver `pg` ends each statement with a Sync, and at a Sync the server sends what it has. So each answer is a system call of the server, and
// wakes us up. Here the statements that are asked for in the same turn share one Sync. Example, the beginning of a transaction
// (postgres-lanes.ts):
//
//   BEGIN; check of the lease; lock org; first statement; Sync     -> four answers in one piece
//
// The server keeps a named statement for its connection, so it reads the text once. We keep the columns of its rows, so it describes them once.
//
// If a statement fails, the server answers none of those after it, up to the Sync. They fail with the same error.
import { type ClientBase, type Connection, Query } from 'pg';
import type { SqlValue } from './db.ts';

export interface Asked {
  text: string;
  values?: readonly SqlValue[];
  /** The server keeps the plan of a statement with a name. A name has one text for ever. */
  name?: string;
}

export interface Answered {
  rows: Record<string, unknown>[];
  /** The number of rows that were read or changed. */
  rowCount: number;
}

/** Sends the statement as soon as the current code has ended, after those of the same connection that were asked for before it. */
export type Ask = (client: ClientBase, asked: Asked) => Promise<Answered>;

/** The columns of each statement that the server has parsed for a connection. The key is the name of the statement. */
type ColumnsByName = Map<string, Column[]>;

interface Column {
  name: string;
  parse(value: string): unknown;
}

export function openPipelines(): Ask {
  const columnsOf = new WeakMap<ClientBase, ColumnsByName>();
  const unsent = new WeakMap<ClientBase, Packet>();
  const packetOf = (client: ClientBase): Packet => {
    const found = unsent.get(client);
    if (found !== undefined) return found;
    const columnsByName: ColumnsByName = columnsOf.get(client) ?? new Map();
    columnsOf.set(client, columnsByName);
    const packet = new Packet(client, columnsByName);
    unsent.set(client, packet);
    process.nextTick(() => {
      unsent.delete(client);
      client.query(packet);
    });
    return packet;
  };
  return async (client, asked) => {
    try {
      return await packetOf(client).add(asked);
    } catch (error) {
      // The stack of the driver ends at its socket.
      if (error instanceof Error) Error.captureStackTrace(error);
      throw error;
    }
  };
}

interface Waiting {
  asked: Asked;
  /** The columns of the rows. Undefined if the server has not described them in this packet. */
  columns: Column[] | undefined;
  rows: Answered['rows'];
  /** Why a row could not be decoded. Undefined: all could. */
  failure: unknown;
  resolve(answered: Answered): void;
  reject(error: unknown): void;
}

/** The driver calls these methods with the messages of the server. They are not in its types. */
class Packet extends Query {
  /** The driver ends its time limit for the answer here. */
  callback = (_error: unknown): void => undefined;
  readonly #client: ClientBase;
  readonly #columnsByName: ColumnsByName;
  /** The first one is answered next. */
  readonly #waiting: Waiting[] = [];

  constructor(client: ClientBase, columnsByName: ColumnsByName) {
    super('');
    this.#client = client;
    this.#columnsByName = columnsByName;
  }

  add(asked: Asked): Promise<Answered> {
    return new Promise((resolve, reject) => {
      this.#waiting.push({ asked, columns: undefined, rows: [], failure: undefined, resolve, reject });
    });
  }

  override submit = (connection: Connection): void => {
    const sent = new Set<string>();
    connection.stream.cork();
    for (const { asked } of this.#waiting) {
      const { name = '' } = asked;
      send(connection, asked, name !== '' && (sent.has(name) || this.#columnsByName.has(name)));
      sent.add(name);
    }
    connection.sync();
    connection.stream.uncork();
  };

  handleRowDescription({ fields }: { fields: { name: string; dataTypeID: number }[] }): void {
    const [next] = this.#waiting;
    if (next === undefined) return;
    next.columns = fields.map(({ name, dataTypeID }) => ({ name, parse: this.#client.getTypeParser(dataTypeID) }));
  }

  handleDataRow({ fields }: { fields: (string | null)[] }): void {
    const [next] = this.#waiting;
    if (next === undefined) return;
    try {
      const columns = next.columns ?? this.#columnsByName.get(next.asked.name ?? '') ?? [];
      const row: Record<string, unknown> = {};
      for (const [i, { name, parse }] of columns.entries()) row[name] = readValue(fields[i], parse);
      next.rows.push(row);
    } catch (error) {
      next.failure ??= error;
    }
  }

  handleCommandComplete({ text }: { text: string }): void {
    const next = this.#waiting.shift();
    if (next === undefined) return;
    const { asked, columns, rows, failure } = next;
    if (asked.name !== undefined && !this.#columnsByName.has(asked.name))
      this.#columnsByName.set(asked.name, columns ?? []);
    if (failure === undefined) next.resolve({ rows, rowCount: countOf(text) });
    else next.reject(failure);
  }

  /** The answer to a text that is empty, or only a comment. */
  handleEmptyQuery(): void {
    this.handleCommandComplete({ text: '' });
  }

  handleError(error: unknown): void {
    for (const { reject } of this.#waiting.splice(0)) reject(error);
    this.callback(error);
  }
}

/** `isParsed`: the server has parsed the text under this name, and its columns are kept or come with this packet. */
function send(connection: Connection, { text, values = [], name = '' }: Asked, isParsed: boolean): void {
  if (!isParsed) {
    // The server may know the name from a packet that failed.
    if (name !== '') connection.close({ type: 'S', name }, true);
    connection.parse({ name, text, types: [] }, true);
  }
  connection.bind({ statement: name, values: values.map(sentValue) }, true);
  if (!isParsed) connection.describe({ type: 'P' }, true);
  connection.execute(null, true);
}

function sentValue(value: SqlValue): string | Buffer | null {
  if (typeof value === 'bigint') return value.toString();
  return value instanceof Uint8Array ? Buffer.from(value.buffer, value.byteOffset, value.byteLength) : value;
}

/** `UPDATE 3` is 3, and `COMMIT` is 0. */
function countOf(text: string): number {
  return Number(text.slice(text.lastIndexOf(' ') + 1)) || 0;
}

function readValue(value: string | null | undefined, parse: Column['parse']): unknown {
  return value === null || value === undefined ? null : parse(value);
}
