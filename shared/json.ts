// Parses JSON of strangers in bounded time.
//
// The time that JSON.parse takes depends on how many values a text has, not on its length. A string of 8 MiB takes 15 ms. 8 MiB of
// `{"a":0},{"b":0},...` take 650 ms, and nobody else is served during that time. So a text with too many values is refused before it is
// parsed. Example: `{"a": [1, 2]}` has five: the object, its name, the array, and its two numbers.

/** Thrown before anything is parsed. */
export class TooManyValues extends Error {
  readonly valuesMax: number;

  constructor(valuesMax: number) {
    super(`more than ${valuesMax} names and values`);
    this.name = 'TooManyValues';
    this.valuesMax = valuesMax;
  }
}

/** Shorter texts are not counted. They cannot hold enough values to take long: the worst of this length takes 5 ms. */
const COUNTED_FROM_CHARS = 64 * 1024;

/**
 * The value of a JSON text with at most `valuesMax` names and values.
 * @throws SyntaxError if it is not JSON, TooManyValues
 */
export function parseJson(text: string, valuesMax: number): unknown {
  if (text.length > COUNTED_FROM_CHARS && hasMoreValues(text, valuesMax)) throw new TooManyValues(valuesMax);
  return JSON.parse(text);
}

const QUOTE = 0x22;
const BACKSLASH = 0x5c;
const COMMA = 0x2c;
const COLON = 0x3a;
const BRACKET = 0x5b;
const BRACE = 0x7b;

/** Counts the beginnings of values and skips strings, in one pass that ends at the first value too many. */
function hasMoreValues(text: string, valuesMax: number): boolean {
  let count = 1;
  let inString = false;
  for (let at = 0; at < text.length; at += 1) {
    const code = text.charCodeAt(at);
    if (inString) {
      if (code === BACKSLASH) at += 1;
      else if (code === QUOTE) inString = false;
    } else if (code === QUOTE) inString = true;
    else if (code === COMMA || code === COLON || code === BRACKET || code === BRACE) {
      count += 1;
      if (count > valuesMax) return true;
    }
  }
  return false;
}
