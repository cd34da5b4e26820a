// A conversation: its turns, the one that is being answered, and the request that asks the next.
import { useEffect, useRef, useState } from 'preact/hooks';
import { ApiError } from '../core/api.ts';
import { may } from '../core/session.ts';
import { useTyped } from '../core/typed.ts';
import { type Answer, ask, type Question } from './ask.ts';
import { costText, receiptOf } from './receipts.ts';

export interface Turn {
  question: string;
  answer: Answer | undefined;
  /** The charge of the receipt; undefined until it is known. */
  cost: string | undefined;
  isOver: boolean;
}

export interface Talk {
  turns: readonly Turn[];
  isBusy: boolean;
  error: ApiError | undefined;
  ruleOf(field: string): string | undefined;
  /** False if the question was refused before its answer began. Then it is no turn. */
  ask(text: string, question: Question): Promise<boolean>;
  stop(): void;
  clear(): void;
}

const NO_TURNS: readonly Turn[] = [];

/** `giveBack` gets a question that nobody has answered, because the page was left or the session ended. */
export function useTalk(modelId: string, giveBack: (question: string) => void): Talk {
  const [turns, setTurns] = useTyped(`talk/${modelId}`, NO_TURNS);
  const [isBusy, setBusy] = useState(false);
  const [error, setError] = useState<ApiError>();
  const running = useRef<AbortController>();
  useEffect(() => {
    const unanswered = turns.find(isUnanswered);
    if (unanswered !== undefined) giveBack(unanswered.question);
    if (turns.length > 0)
      setTurns(turns.filter((turn) => !isUnanswered(turn)).map((turn) => ({ ...turn, isOver: true })));
    return () => running.current?.abort();
  }, []);
  const change = (more: Partial<Turn>): void =>
    setTurns((before) => before.map((turn, index) => (index === before.length - 1 ? { ...turn, ...more } : turn)));
  const run = async (question: Question, signal: AbortSignal, began: () => void): Promise<void> => {
    const { receiptId } = await ask(question, signal, (answer) => {
      began();
      change({ answer });
    });
    if (receiptId !== undefined && may('billing: read')) change({ cost: costText(await receiptOf(receiptId)) });
  };
  return {
    turns,
    isBusy,
    error,
    ruleOf: (field) => error?.errors.find((each) => each.field === field)?.rule,
    ask: async (text, question) => {
      const stop = new AbortController();
      running.current = stop;
      setBusy(true);
      setError(undefined);
      setTurns((before) => [...before, { question: text, answer: undefined, cost: undefined, isOver: false }]);
      let hasBegun = false;
      try {
        await run(question, stop.signal, () => (hasBegun = true));
      } catch (failure) {
        if (!(failure instanceof ApiError)) {
          if (!stop.signal.aborted) throw failure;
          return true;
        }
        setError(failure);
        if (hasBegun) return true;
        setTurns((before) => before.slice(0, -1));
        return false;
      } finally {
        change({ isOver: true });
        setBusy(false);
      }
      return true;
    },
    stop: () => running.current?.abort(),
    clear: () => setTurns(NO_TURNS),
  };
}

const isUnanswered = ({ answer, isOver }: Turn): boolean => answer === undefined && !isOver;

export interface Said {
  id: string;
  system: string;
  message: string;
  temperature: string;
  maxTokens: string;
  turns: readonly Turn[];
}

/** The request for the next answer. It contains the whole conversation, because the service keeps none. */
export function questionOf({ id, system, message, temperature, maxTokens, turns }: Said): Question {
  const before = turns.flatMap(({ question, answer }) =>
    answer === undefined || answer.text === ''
      ? []
      : [
          { role: 'user' as const, content: question },
          { role: 'assistant' as const, content: answer.text },
        ],
  );
  return {
    model: id,
    messages: [
      ...(system === '' ? [] : [{ role: 'system' as const, content: system }]),
      ...before,
      { role: 'user', content: message },
    ],
    ...(temperature === '' ? {} : { temperature: Number(temperature) }),
    ...(maxTokens === '' ? {} : { max_tokens: Number(maxTokens) }),
  };
}
