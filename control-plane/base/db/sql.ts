// SQL statements: `sql` makes one from a template, `join` from a list, and `raw` from a text of ours.
//
// A statement is not joined to one text when it is made. Nearly every statement was made before from the same templates, nested in the same way, and
// only its values are new. To join the texts anew took a tenth of the processor time of a launch. So a driver asks `openTexts` for the text, which
// follows the templates to the text that was joined the first time. Example:
//
//   const isFree = sql`held_by is null`;
//   sql`select gpu_uuid from machine_gpus where machine_id = ${id} and ${isFree}`
//
//   step 1: the template "select gpu_uuid ...", after no value
//   step 2: the template "held_by is null", after one value     -> the text
//
// The steps decide the text: each template has a fixed number of parts, and all parts that are no step are values.

/** What the pieces of a statement are known by: their template, or a text from which they follow. */
type Name = TemplateStringsArray | string;

export class Sql {
  readonly name: Name;
  /** The texts before, between and after the parts. */
  readonly pieces: readonly string[];
  /** Values and other statements. */
  readonly parts: readonly unknown[];
  /** True if all parts are values. */
  readonly isPlain: boolean;

  constructor(name: Name, pieces: readonly string[], parts: readonly unknown[]) {
    this.name = name;
    this.pieces = pieces;
    this.parts = parts;
    this.isPlain = !parts.some(isStatement);
  }

  get values(): readonly unknown[] {
    return this.isPlain ? this.parts : addValues([], this.parts);
  }

  /** The texts before, between and after the values. */
  get strings(): readonly string[] {
    if (this.isPlain) return this.pieces;
    const strings = [this.pieces[0] ?? ''];
    const add = (text = ''): void => {
      strings[strings.length - 1] += text;
    };
    for (const [i, part] of this.parts.entries()) {
      if (part instanceof Sql) {
        const [first, ...others] = part.strings;
        add(first);
        strings.push(...others);
      } else {
        strings.push('');
      }
      add(this.pieces[i + 1]);
    }
    return strings;
  }
}

/** Makes a statement from a template. Values become parameters, and other statements become parts of the text. */
export function sql(template: TemplateStringsArray, ...parts: unknown[]): Sql {
  return new Sql(template, template, parts);
}

/** A list of values or statements for a statement. @throws Error for an empty list, which SQL does not have */
export function join(parts: readonly unknown[], separator = ','): Sql {
  if (parts.length === 0) throw new Error('a list in a statement needs at least one member');
  return new Sql(separator, ['', ...Array.from({ length: parts.length - 1 }, () => separator), ''], parts);
}

/** A text that becomes part of a statement unchanged, so it must come from our own code. */
export function raw(text: string): Sql {
  return new Sql(text, [text], []);
}

/** The template that alone decides the text of the statement, so that a driver prepares it once; undefined if it has parts. */
export function templateOf({ name, isPlain }: Sql): TemplateStringsArray | undefined {
  return isPlain && typeof name !== 'string' ? name : undefined;
}

interface Place {
  text: string | undefined;
  readonly steps: Map<Name, Step>;
}

interface Step {
  parts: number;
  /** The number of values before the step. */
  after: number;
  to: Place;
  /** A step of the same name with other numbers. */
  other: Step | undefined;
}

export type TextOf = (statement: Sql) => string;

/** A place takes about as much memory as a text of this length. */
const PLACE_CHARS = 200;

/**
 * The function returns the text that `joined` makes of the strings of a statement. It keeps texts and places up to `charsMax`, and then begins anew,
 * because lists of ids make texts without end.
 */
export function openTexts(joined: (strings: readonly string[]) => string, charsMax: number): TextOf {
  let root = newPlace();
  let chars = 0;
  let passed = 0;
  const next = (from: Place, { name, parts: { length } }: Sql): Place => {
    const first = from.steps.get(name);
    for (let step = first; step !== undefined; step = step.other)
      if (step.parts === length && step.after === passed) return step.to;
    const to = newPlace();
    chars += PLACE_CHARS;
    from.steps.set(name, { parts: length, after: passed, to, other: first });
    return to;
  };
  const walk = (from: Place, statement: Sql): Place => {
    let place = next(from, statement);
    if (statement.isPlain) {
      passed += statement.parts.length;
      return place;
    }
    for (const part of statement.parts) {
      if (part instanceof Sql) place = walk(place, part);
      else passed += 1;
    }
    return place;
  };
  return (statement) => {
    passed = 0;
    const place = walk(root, statement);
    if (place.text !== undefined) return place.text;
    const text = joined(statement.strings);
    place.text = text;
    chars += text.length;
    if (chars > charsMax) {
      root = newPlace();
      chars = 0;
    }
    return text;
  };
}

function newPlace(): Place {
  return { text: undefined, steps: new Map() };
}

function isStatement(part: unknown): boolean {
  return part instanceof Sql;
}

/** Drivers ask for the values of each statement, so it makes no list for each part. */
function addValues(values: unknown[], parts: readonly unknown[]): unknown[] {
  for (const part of parts) {
    if (part instanceof Sql) addValues(values, part.parts);
    else values.push(part);
  }
  return values;
}
