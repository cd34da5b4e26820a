// Parses JSON of strangers in bounded time.
//
// The time that JSON.parse takes depends on how many values a text has, not on its length. A string of 8 MiB takes 15 ms. 8 MiB of
// `{"a":0},{"b":0},...` take 650 ms, and nobody else is served during that time. So a text with too many values is refused before it is
// parsed. Example: `{"a": [1, 2]}` has five: the object, its name, the array, and its two numbers.
//
// JSON.parse reads any depth, but whatever walks the value afterwards may call itself once for each level. So a text of deep levels is refused too.
// The example has two levels.

/** Thrown before anything is parsed. The message says of what the text has too many. */
export class TooManyValues extends Error {
  constructor(what: string) {
    super(`more than ${what}`);
    this.name = 'TooManyValues';
  }
}

/** The deepest honest text is a schema of a tool's parameters, with two or three levels for each of its own. */
export const JSON_LEVELS_MAX = 100;

/** Shorter texts are not counted. They cannot hold enough values to take long: the worst of this length takes 5 ms. */
const COUNTED_FROM_CHARS = 64 * 1024;

/**
 * The value of a JSON text with at most `valuesMax` names and values, and at most `JSON_LEVELS_MAX` levels of arrays and objects.
 * @throws SyntaxError if it is not JSON, TooManyValues
 */
export function parseJson(text: string, valuesMax: number): unknown {
  if (text.length > COUNTED_FROM_CHARS) assertBounded(text, valuesMax);
  else if (opensMany(text)) assertBounded(text, Infinity);
  return JSON.parse(text);
}

/** Whether the text may have too many levels. It looks at brackets only, and most texts have few. */
function opensMany(text: string): boolean {
  let count = 0;
  for (const bracket of ['{', '[']) {
    for (let at = text.indexOf(bracket); at !== -1; at = text.indexOf(bracket, at + 1)) {
      count += 1;
      if (count > JSON_LEVELS_MAX) return true;
    }
  }
  return false;
}

const QUOTE = 0x22;
const BACKSLASH = 0x5c;
const COMMA = 0x2c;
const COLON = 0x3a;
const BRACKET = 0x5b;
const BRACE = 0x7b;
const BRACKET_END = 0x5d;
const BRACE_END = 0x7d;

/**
 * Counts the beginnings of values and the levels, and skips strings, in one pass that ends at the first value or level too many.
 * @throws TooManyValues
 */
function assertBounded(text: string, valuesMax: number): void {
  let count = 1;
  let strings = 0;
  let level = 0;
  for (let at = 0; at < text.length; at += 1) {
    const code = text.charCodeAt(at);
    if (code === QUOTE) {
      // Each string is a name or a value. Their number bounds the time for a text that has nothing between them.
      strings += 1;
      if (strings > valuesMax) throw new TooManyValues(`${valuesMax} names and values`);
      at = endOfString(text, at);
    } else if (code === BRACKET_END || code === BRACE_END) level -= 1;
    else if (code === COMMA || code === COLON || code === BRACKET || code === BRACE) {
      count += 1;
      if (code === BRACKET || code === BRACE) level += 1;
      if (count > valuesMax) throw new TooManyValues(`${valuesMax} names and values`);
      if (level > JSON_LEVELS_MAX) throw new TooManyValues(`${JSON_LEVELS_MAX} levels of arrays and objects`);
    }
  }
}

/** The position of the quote that ends the string; the length of the text if none does. Almost all of a long text is in strings. */
function endOfString(text: string, start: number): number {
  const first = text.indexOf('"', start + 1);
  if (first === -1) return text.length;
  if (text.charCodeAt(first - 1) !== BACKSLASH) return first;
  // From here on each character is looked at, because a search for each of many escaped quotes would take longer.
  let at = start + 1;
  while (at < text.length && text.charCodeAt(at) !== QUOTE) at += text.charCodeAt(at) === BACKSLASH ? 2 : 1;
  return at;
}
