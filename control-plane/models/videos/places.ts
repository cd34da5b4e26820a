// The places of each server: how many of its jobs are driven at once. A server that hangs leaves each question open for half a minute. If all servers
// shared their places, it would soon have all of them.
//
// A server that did not answer the last question is silent, and has one place. The job in this place asks again. If there is still no answer, all
// other due jobs of the server count as asked too (`shareSilence` in driver.ts). The first answer gives the server its places back.

/** `submit`: a job is sent; `fetch`: a file is fetched, which takes long; `ask`: all else. */
export type Purpose = 'submit' | 'ask' | 'fetch';

const PLACES: Readonly<Record<Purpose, number>> = { submit: 8, ask: 8, fetch: 6 };

export interface Places {
  /** Takes a place of the server until the returned function is called. Undefined if none is free. */
  take(url: string, purpose: Purpose): (() => void) | undefined;
  /** The number of places that are taken. */
  taken(url: string): number;
  noteAnswer(url: string): void;
  noteSilence(url: string): void;
  isSilent(url: string): boolean;
}

export function openPlaces(): Places {
  const silent = new Set<string>();
  /** One entry for each place that is taken. */
  const purposes = new Map<string, Purpose[]>();
  const at = (url: string): readonly Purpose[] => purposes.get(url) ?? [];
  return {
    take: (url, purpose) => {
      const taken = at(url);
      const isFull = silent.has(url)
        ? taken.length > 0
        : taken.filter((each) => each === purpose).length >= PLACES[purpose];
      if (isFull) return undefined;
      purposes.set(url, [...taken, purpose]);
      return () => {
        const left = [...at(url)];
        left.splice(left.indexOf(purpose), 1);
        if (left.length === 0) purposes.delete(url);
        else purposes.set(url, left);
      };
    },
    taken: (url) => at(url).length,
    noteAnswer: (url) => void silent.delete(url),
    noteSilence: (url) => void silent.add(url),
    isSilent: (url) => silent.has(url),
  };
}
