// A conversation: its turns, the one that is being answered, and the request that asks the next.
import { useEffect, useRef, useState } from 'preact/hooks';
import type { TokenUsage } from '../../../../shared/api/chat.ts';
import type { Receipt } from '../../../../shared/api/receipt.ts';
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
  /** Tokens that a stopped answer was charged for. Its model server has sent no count to the browser. */
  usage?: Pick<TokenUsage, 'prompt_tokens' | 'completion_tokens'> | undefined;
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
  /** Another question may have been asked, or the conversation been cleared, before the receipt is there. */
  const showCharge = async (asked: Asked, receiptId: string | undefined): Promise<void> => {
    if (receiptId === undefined || !may('billing: read')) return;
    const charge = chargeOf(await receiptOf(receiptId));
    setTurns((before) => before.map((turn, index) => (isTurn(turn, index, asked) ? { ...turn, ...charge } : turn)));
  };
  const run = async (asked: Asked, question: Question, signal: AbortSignal, began: () => void): Promise<void> => {
    let receiptId: string | undefined;
    const tell = (answer: Answer): void => {
      began();
      change({ answer });
    };
    try {
      await ask(question, signal, { begin: (id) => (receiptId = id), tell });
    } catch (failure) {
      // The receipt is closed once the service has noticed that the stream was cut. Nobody waits for that.
      if (signal.aborted) void showCharge(asked, receiptId).catch(() => undefined);
      throw failure;
    }
    await showCharge(asked, receiptId);
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
      const asked = { index: turns.length, text };
      let hasBegun = false;
      try {
        await run(asked, question, stop.signal, () => (hasBegun = true));
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

/** The place of a turn in the conversation, and its question. */
interface Asked {
  index: number;
  text: string;
}

function isTurn({ question }: Turn, index: number, asked: Asked): boolean {
  return index === asked.index && question === asked.text;
}

function chargeOf(receipt: Receipt): Pick<Turn, 'cost' | 'usage'> {
  const { prompt_tokens: prompt, completion_tokens: completion } = receipt;
  const usage =
    prompt === null || completion === null ? undefined : { prompt_tokens: prompt, completion_tokens: completion };
  return { cost: costText(receipt), usage };
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
