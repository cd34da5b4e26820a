// Keeps what a driver has prepared, up to a limit. Lists of ids make texts without end.

/**
 * The function returns what `prepare` has made of a text. It keeps the texts that were used last, up to `charsMax` characters of text.
 *
 * It has two generations. What is used comes into the new one. When the new one has half of the characters, it becomes the old one, and what was old
 * is dropped. So a text is dropped only if half of the characters were used after it, and a text that is used often costs one look-up.
 */
export function keepPrepared<T>(prepare: (text: string) => T, charsMax: number): (text: string) => T {
  const half = charsMax / 2;
  let older = new Map<string, T>();
  let newer = new Map<string, T>();
  let newerChars = 0;
  return (text) => {
    const found = newer.get(text);
    if (found !== undefined) return found;
    const prepared = older.get(text) ?? prepare(text);
    // It would push out everything else.
    if (text.length > half) return prepared;
    if (newerChars + text.length > half) {
      older = newer;
      newer = new Map();
      newerChars = 0;
    }
    newer.set(text, prepared);
    newerChars += text.length;
    return prepared;
  };
}
