// Collects the rules of the specification from the comments above the tests that prove them.
//
// A comment is `// Specification <section>: <rule>.`, directly above its test. A long rule goes on in the next `//` lines, and several rules may
// stand above one test, each on its own `// Specification` line.

export interface SpecRule {
  /** Section of the specification. */
  section: string;
  /** The text without the full stop at its end. */
  rule: string;
}

export interface SpecComments {
  rules: SpecRule[];
  /** One sentence for each comment that is misplaced or has another form. */
  faults: string[];
}

const FIRST_LINE = /^\s*\/\/ Specification ([1-9](?:\.\d+)?): (\S.*)$/;
const FURTHER_LINE = /^\s*\/\/ (?!Specification )(.+)$/;
/** Also behind code, in a comment of another kind, or without a rule. */
const ANY_FORM = /(?:\/\/|\/?\*)\s*Specification \d[\d.]*:/;

/** The rules that one test file names, and its comments that do not stand directly above a test. */
export function specComments(path: string, source: string): SpecComments {
  const lines = source.split('\n');
  const found = lines.flatMap((line, at) => (ANY_FORM.test(line) ? [ruleAt(lines, at)] : []));
  return {
    rules: found.flatMap(({ rule }) => rule ?? []),
    faults: found.flatMap(({ line, fault }) => (fault === undefined ? [] : [`${path}:${line}: ${fault}`])),
  };
}

function ruleAt(lines: readonly string[], at: number): { line: number; rule?: SpecRule; fault?: string } {
  const line = at + 1;
  const [, section, first] = FIRST_LINE.exec(lines[at] ?? '') ?? [];
  if (section === undefined || first === undefined) {
    return { line, fault: 'a rule is a comment of the form "// Specification <section>: <rule>."' };
  }
  const text = [first, ...furtherLines(lines, line)].join(' ');
  const rule = { section, rule: text.replace(/\.$/, '') };
  if (!text.endsWith('.')) return { line, rule, fault: 'a rule ends with a full stop.' };
  if (!isTest(codeBelow(lines, line)))
    return { line, rule, fault: 'a rule stands directly above a test that proves it.' };
  return { line, rule };
}

/** The lines on which the rule above `start` goes on. */
function furtherLines(lines: readonly string[], start: number): string[] {
  const end = lines.findIndex((line, at) => at >= start && !FURTHER_LINE.test(line));
  return lines.slice(start, end < 0 ? lines.length : end).map((line) => line.replace(FURTHER_LINE, '$1'));
}

/** The source from the first line after `start` that is not a comment of that form. */
function codeBelow(lines: readonly string[], start: number): string {
  const end = lines.findIndex((line, at) => at >= start && !/^\s*\/\/ /.test(line));
  return end < 0 ? '' : lines.slice(end).join('\n');
}

/** A test of Vitest, or a call of a function that takes a title and the body of a test. */
function isTest(code: string): boolean {
  const isOfVitest = /^ *(?:test|it)(?:\.\w+)*[(<`]/.test(code);
  const isOfTheFile = /^ *(?!describe\b)[\w.]+\(\s*(['"`])(?:\\.|(?!\1)[^\\])*\1,\s*(?:async\s*)?\(/.test(code);
  return isOfVitest || isOfTheFile;
}
