// What a careful person writes with the driver alone: one transaction for each posting, and a group commit. No retries, no refusals, no lease.
import Database from 'better-sqlite3';
import { Client, type QueryResult } from 'pg';

/** A statement with its values, in the words of the driver. */
export interface Raw {
  text: string;
  values: unknown[];
}

export interface Peer {
  /** Each posting is a transaction; those of many callers queue for the connections. */
  single(posting: readonly Raw[]): Promise<void>;
  /** Postings that arrive while one transaction commits share the next one. */
  grouped(posting: readonly Raw[]): Promise<void>;
  close(): Promise<void>;
}

const BATCH_MAX = 512;

export function openSqlitePeer(path: string): Peer {
  const database = new Database(path);
  database.pragma('journal_mode = WAL');
  database.pragma('synchronous = FULL');
  const prepared = new Map<string, Database.Statement>();
  const run = ({ text, values }: Raw): void => {
    let statement = prepared.get(text);
    if (statement === undefined) prepared.set(text, (statement = database.prepare(text)));
    statement.run(...values);
  };
  const commit = database.transaction((postings: readonly (readonly Raw[])[]) => {
    for (const posting of postings) for (const statement of posting) run(statement);
  });
  return {
    single: async (posting) => commit.immediate([posting]),
    grouped: groupCommit(async (postings) => commit.immediate(postings)),
    close: async () => void database.close(),
  };
}

/** `connections` is how many transactions of one posting run side by side. */
export async function openPostgresPeer(url: string, connections: number): Promise<Peer> {
  const clients = Array.from({ length: connections }, () => new Client({ connectionString: url, pipeline: true }));
  for (const client of clients) await client.connect();
  const names = new Map<string, string>();
  const send = (client: Client, { text, values }: Raw): Promise<QueryResult> => {
    const name = names.get(text) ?? `p${names.size}`;
    names.set(text, name);
    return client.query({ name, text, values });
  };
  const commit = async (client: Client, postings: readonly (readonly Raw[])[]): Promise<void> => {
    const statements = postings.flat().map((statement) => send(client, statement));
    await Promise.all(statements);
  };
  const inTransaction = async (client: Client, postings: readonly (readonly Raw[])[]): Promise<void> => {
    const begun = client.query('begin');
    const done = commit(client, postings);
    await Promise.all([begun, done, client.query('commit')]);
  };
  const idle = [...clients];
  const waiting: ((client: Client) => void)[] = [];
  const [first] = clients;
  if (first === undefined) throw new Error('a peer needs a connection');
  return {
    single: async (posting) => {
      const client = idle.pop() ?? (await new Promise<Client>((resolve) => waiting.push(resolve)));
      await inTransaction(client, [posting]);
      const next = waiting.shift();
      if (next === undefined) idle.push(client);
      else next(client);
    },
    grouped: groupCommit((postings) => inTransaction(first, postings)),
    close: async () => {
      for (const client of clients) await client.end();
    },
  };
}

function groupCommit(commit: (postings: (readonly Raw[])[]) => Promise<void>): Peer['grouped'] {
  const queue: { posting: readonly Raw[]; done: PromiseWithResolvers<void> }[] = [];
  let isRunning = false;
  const flush = async (): Promise<void> => {
    isRunning = true;
    while (queue.length > 0) {
      await new Promise((resolve) => setImmediate(resolve));
      const batch = queue.splice(0, BATCH_MAX);
      await commit(batch.map(({ posting }) => posting));
      for (const { done } of batch) done.resolve();
    }
    isRunning = false;
  };
  return (posting) => {
    const done = Promise.withResolvers<void>();
    queue.push({ posting, done });
    if (!isRunning) void flush();
    return done.promise;
  };
}
