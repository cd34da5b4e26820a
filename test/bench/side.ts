// One side of a bench is a process of its own, as in production; orders and answers go over Node's IPC.
import { fork } from 'node:child_process';
import { once } from 'node:events';

/** A side as its parent sees it. */
export interface Side {
  pid: number;
  /** Sends an order and resolves with its answer; rejects with what went wrong over there. */
  ask(order: Order): Promise<Answer>;
  stop(): Promise<void>;
}

export type Order = { kind: string } & Record<string, string | number>;
export type Answer = Record<string, number>;

interface Envelope {
  id: number;
  order: Order;
}

interface Reply {
  id: number;
  answer?: Answer;
  error?: string;
}

interface SideOptions {
  /** Receives its unrequested messages. */
  onNews?: (news: Order) => void;
  /** The flags for Node that the real program uses. */
  flags?: readonly string[];
}

/** Starts a program of this folder. */
export async function startSide(program: URL, { onNews, flags = [] }: SideOptions = {}): Promise<Side> {
  const child = fork(program, { execArgv: [...flags], stdio: ['ignore', 'inherit', 'inherit', 'ipc'] });
  const waiting = new Map<number, PromiseWithResolvers<Answer>>();
  let lastId = 0;
  child.on('message', (message: Reply | { news: Order }) => {
    if ('news' in message) return onNews?.(message.news);
    const { id, answer, error } = message;
    if (answer === undefined) waiting.get(id)?.reject(new Error(error));
    else waiting.get(id)?.resolve(answer);
    waiting.delete(id);
  });
  child.once('exit', () => {
    for (const one of waiting.values()) one.reject(new Error(`${program.pathname} ended`));
  });
  await once(child, 'spawn');
  return {
    pid: child.pid ?? 0,
    ask: (order) => {
      const id = (lastId += 1);
      const answer = Promise.withResolvers<Answer>();
      waiting.set(id, answer);
      child.send({ id, order } satisfies Envelope);
      return answer.promise;
    },
    stop: async () => {
      const gone = once(child, 'exit');
      child.disconnect();
      await gone;
    },
  };
}

/** Runs in a side: answers orders until the parent ends it, or exits. */
export function serveOrders(handle: (order: Order) => Promise<Answer>): void {
  process.on('disconnect', () => process.exit(0));
  process.on('message', ({ id, order }: Envelope) => {
    handle(order).then(
      (answer) => process.send?.({ id, answer } satisfies Reply),
      (error: unknown) => process.send?.({ id, error: String(error) } satisfies Reply),
    );
  });
}

/** Runs in a side: sends the parent an unrequested message. */
export function tellParent(news: Order): void {
  process.send?.({ news });
}
