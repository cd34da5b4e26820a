// Finds the faults inside SQL: many promises of this product are a clause of a query, which tools for TypeScript do not look into.
import type { Change } from './faults.ts';

/** These words end a list of conditions or of columns, if they stand at the bracket depth of the list. */
const ENDS =
  /^(?:group by|order by|limit|returning|on conflict|union|from|set|do (?:nothing|update)|else|end|when|then)\b/i;
const BOUNDARIES: Record<string, string> = { '<': '<=', '<=': '<', '>': '>=', '>=': '>' };

/** Returns all faults of one template as it stands in the source. Each `${...}` counts as one word. */
export function sqlFaults(template: string): Change[] {
  const words = wordsOf(template);
  return words.flatMap((word, at) => {
    if (/^(?:where|having)$/i.test(word.text)) return conditionFaults(template, words, at);
    if (/^order$/i.test(word.text) && /^by$/i.test(words[at + 1]?.text ?? ''))
      return orderFaults(template, words, at + 2);
    return boundaryFaults(word);
  });
}

interface Word {
  text: string;
  start: number;
  end: number;
  /** The depth of brackets. */
  depth: number;
}

/** Drops each condition. A condition that stands alone becomes true instead. */
function conditionFaults(template: string, words: readonly Word[], at: number): Change[] {
  const parts = partsOf(template, words, { from: at + 1, separator: /^and$/i });
  const what = 'SQL condition dropped';
  if (parts.length === 1) return parts.map(({ start, end }) => ({ start, end, replacement: '1 = 1', what }));
  return parts.map(({ start, end }, index) => {
    const next = parts[index + 1];
    const previous = parts[index - 1];
    return next === undefined
      ? { start: previous?.end ?? start, end, replacement: '', what }
      : { start, end: next.start, replacement: '', what };
  });
}

/** Drops the last of several columns, which is the tie-break. */
function orderFaults(template: string, words: readonly Word[], from: number): Change[] {
  const parts = partsOf(template, words, { from, separator: /^,$/ });
  const [last, previous] = [parts.at(-1), parts.at(-2)];
  if (last === undefined || previous === undefined) return [];
  return [{ start: previous.end, end: last.end, replacement: '', what: 'SQL tie-break dropped' }];
}

function boundaryFaults({ text, start, end }: Word): Change[] {
  const replacement = BOUNDARIES[text];
  return replacement === undefined ? [] : [{ start, end, replacement, what: `SQL ${text} became ${replacement}` }];
}

/** Returns the parts of the list that begins at a word and ends at its own bracket depth. */
function partsOf(
  template: string,
  words: readonly Word[],
  { from, separator }: { from: number; separator: RegExp },
): { start: number; end: number }[] {
  const first = words[from];
  if (first === undefined) return [];
  const parts = [{ start: first.start, end: first.start }];
  const level = words[from - 1]?.depth ?? 0;
  for (const word of words.slice(from)) {
    if (word.depth < level) break;
    if (word.depth === level && (word.text === ')' || ENDS.test(template.slice(word.start)))) break;
    const part = parts.at(-1);
    if (part === undefined) break;
    if (word.depth === level && separator.test(word.text)) parts.push({ start: word.end, end: word.end });
    else Object.assign(part, { start: part.start === part.end ? word.start : part.start, end: word.end });
  }
  // The `and` of a `between` joins no conditions.
  const isWhole = !/\bbetween\b/i.test(template.slice(first.start, parts.at(-1)?.end));
  return isWhole ? parts.filter(({ start, end }) => end > start) : [];
}

function wordsOf(template: string): Word[] {
  const words: Word[] = [];
  let depth = 0;
  for (let at = 0; at < template.length;) {
    const rest = template.slice(at);
    const [space] = /^\s+/.exec(rest) ?? [];
    if (space !== undefined) {
      at += space.length;
      continue;
    }
    const text = rest.startsWith('${')
      ? placeholderOf(rest)
      : (/^(?:'[^']*'|[\w.]+|<>|<=|>=|\|\||.)/s.exec(rest)?.[0] ?? '');
    // A bracket has the depth that it opens or closes.
    if (text === '(') depth += 1;
    words.push({ text, start: at, end: at + text.length, depth });
    if (text === ')') depth -= 1;
    at += text.length;
  }
  return words;
}

function placeholderOf(text: string): string {
  let depth = 0;
  for (let at = 1; at < text.length; at += 1) {
    if (text[at] === '{') depth += 1;
    if (text[at] === '}') depth -= 1;
    if (depth === 0) return text.slice(0, at + 1);
  }
  return text;
}
