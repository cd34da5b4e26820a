// Makes one answer for all who ask the same public question at the same moment. Such questions are asked most.
//
// An answer is made in the turn of the event loop after its first caller came. All who ask the same until then get it too. So every caller
// gets what was true after it asked, as if it had been alone: nothing is kept, and a busier service makes fewer answers per caller.
import type { Clock } from '../../../shared/clock.ts';

/** Makes the answer to `question` with `make`, or waits for the one that another caller's `make` is about to begin. */
export type ShareAnswer<T> = (question: string, make: () => Promise<T>) => Promise<T>;

export function openSharedAnswers<T>(clock: Pick<Clock, 'nextTurn'>): ShareAnswer<T> {
  /** The answers that nobody has begun to make. */
  const waiting = new Map<string, Promise<T>>();
  return (question, make) => {
    const found = waiting.get(question);
    if (found !== undefined) return found;
    const answer = clock.nextTurn().then(() => {
      // This comes before the first read, because a later caller must not get what was true before it came.
      waiting.delete(question);
      return make();
    });
    waiting.set(question, answer);
    return answer;
  };
}
