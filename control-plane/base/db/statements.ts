// Keeps what a driver has prepared, up to a limit. Without one it would grow for ever, because a list of ids makes another text for each length.

/**
 * The function returns what `prepare` has made of a text. It keeps the texts that were used last, up to `charsMax` characters of text.
 *
 * The texts are in two generations. A text that is used moves to the newer one. If that has no room left in its half of `charsMax`, it becomes the
 * older one, and the older one before it is dropped. So a text is dropped only after `charsMax / 2` characters of other texts were used, and a text
 * that is used often costs one look-up.
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
    // A text of this length is not kept, because it would push out all others.
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
