// House rules about single files, as pure functions from files to broken rules: names, sizes, first lines, things left behind.
import { commentsOf, withoutComments, type SourceFile } from './sources.ts';

const MAX_LINES = 400;
const MAX_TEST_LINES = 600;
const MAX_COMMENT_WIDTH = 150;

export function fileSizes(files: readonly SourceFile[]): string[] {
  return typescript(files).flatMap((file) => {
    const limit = file.path.startsWith('test/') ? MAX_TEST_LINES : MAX_LINES;
    const lines = lineCount(file.text);
    return lines > limit
      ? [`${file.path} has ${lines} lines, more than ${limit}: it holds more than one idea, split it.`]
      : [];
  });
}

export function firstLines(files: readonly SourceFile[]): string[] {
  return typescript(files)
    .filter(({ text }) => !/^(#!.*\n)?\/\/ \S/.test(text))
    .map(({ path }) => `${path} does not begin with a // line that says what the file is for.`);
}

export function fileNames(files: readonly SourceFile[]): string[] {
  return typescript(files).flatMap(({ path }) => {
    const name = path.slice(path.lastIndexOf('/') + 1).replace(/(\.test)?\.tsx?$/, '');
    if (/^(.*[-.])?(utils?|helpers?|commons?|managers?|index)$/.test(name)) {
      return [`${path}: a file is named after what it does; ${name} is a drawer for anything.`];
    }
    if (!/^[a-z0-9]+(-[a-z0-9]+)*(\.[a-z0-9-]+)*$/.test(name)) return [`${path}: file names are kebab-case.`];
    return [];
  });
}

export function barrels(files: readonly SourceFile[]): string[] {
  const reexport = /^export\s+(type\s+)?(\*(\s+as\s+\w+)?|\{[^}]*\})\s+from\s+['"][^'"]+['"];?\s*/gm;
  const imports = /^import\s[^;]*;\s*/gm;
  return typescript(files)
    .filter(({ text }) => {
      const code = withoutComments(text);
      const own = code.replace(reexport, '');
      return own !== code && own.replace(imports, '').trim() === '';
    })
    .map(({ path }) => `${path} only passes on exports of other files: import from where the thing lives.`);
}

/** Nothing in the project may depend on where it was made: no checkout path and no package registry. */
export function origins(files: readonly SourceFile[], checkout: string): string[] {
  const registry = /\bregistry\.[a-z]+\.(org|com)\b|\bdeb\.[a-z]+\.org\b/;
  // A checkout at /app or /src would forbid names that containers use.
  const isTelling = checkout.split('/').length > 2;
  return files.flatMap(({ path, text }) => {
    const broken: string[] = [];
    if (registry.test(text)) broken.push(`${path} names the host of a package registry.`);
    if (isTelling && text.includes(`${checkout}/`)) broken.push(`${path} holds the path of somebody's checkout.`);
    return broken;
  });
}

/** `npm ci` works on every platform and with every registry: each optional package has its entry, and none has an address. */
export function lockFile(files: readonly SourceFile[]): string[] {
  return files
    .filter(({ path }) => path === 'package-lock.json')
    .flatMap(({ path, text }) => {
      const { packages } = JSON.parse(text) as { packages: Record<string, LockEntry> };
      const missing = Object.entries(packages).flatMap(([holder, entry]) =>
        Object.keys(entry.optionalDependencies ?? {}).filter(
          (name) => !(`node_modules/${name}` in packages) && !(`${holder}/node_modules/${name}` in packages),
        ),
      );
      const broken = missing.map(
        (name) => `${path} has no entry for ${name}: npm ci would fail, take a version that has it.`,
      );
      if (Object.values(packages).some(({ resolved }) => resolved !== undefined)) {
        broken.push(`${path} has "resolved" addresses: install with omit-lockfile-registry-resolved=true.`);
      }
      return broken;
    });
}

interface LockEntry {
  resolved?: string;
  optionalDependencies?: Record<string, string>;
}

export function leftovers(files: readonly SourceFile[]): string[] {
  const notes = /\b(?:T[O]DO|F[I]XME|X{3}|H[A]CK)\b/;
  const parked = /\b(?:it|test|describe)\.(?:skip|only|todo|fails)\b/;
  return files
    .filter(({ path }) => /\.(tsx?|js|sh|md|sql|css)$/.test(path) || path === '.ci/run')
    .flatMap(({ path, text }) => {
      const broken: string[] = [];
      if (notes.test(text)) broken.push(`${path} holds a note for later: do it, or open an issue.`);
      if (parked.test(text)) broken.push(`${path} parks a test: a test that does not run proves nothing.`);
      return broken;
    });
}

/** A comment is a sentence with a subject, or a noun phrase. `Of an answer.` is neither; `With no key, nothing is sent.` is a sentence. */
export function commentSubjects(files: readonly SourceFile[]): string[] {
  const never = /^(?:and|as|of)\b/i;
  const opening =
    /^(?:after|before|below|between|by|for|from|in|like|over|per|so that|to|until|with|without)\b(?!.*,)/i;
  return files
    .filter(({ path }) => /\.(?:tsx?|sql)$/.test(path))
    .flatMap(commentsOf)
    .map(({ place, text }) => ({ place, first: text.replace(/\s+/g, ' ').split(/(?<=[.:;!?])\s/)[0] ?? '' }))
    .filter(({ first }) => never.test(first) || opening.test(first))
    .map(({ place, first }) => `${place}: this comment has no subject, say what the thing is: "${first}"`);
}

/**
 * A comment says what a number is for. The words that this law looks for only point at the number, and the reader has to find it. Before "that"
 * and "as" they mean something else.
 */
export function namedAmounts(files: readonly SourceFile[]): string[] {
  const pointing = /\bso (?:few|long|many|much)\b(?! as\b)(?!.*\bthat\b)/;
  return files
    .filter(({ path }) => /\.(?:tsx?|sql)$/.test(path))
    .flatMap(commentsOf)
    .flatMap(({ place, text }) => text.split(/(?<=[.:;!?])\s/).map((sentence) => ({ place, sentence })))
    .map(({ place, sentence }) => ({ place, sentence: sentence.replace(/\s+/g, ' ') }))
    .filter(({ sentence }) => pointing.test(sentence))
    .map(({ place, sentence }) => `${place}: say which amount this is, and what it is for: "${sentence}"`);
}

/** The formatter does not break comments. A longer line leaves the screen. An address or a row of a table cannot be broken. */
export function commentWidths(files: readonly SourceFile[]): string[] {
  return typescript(files).flatMap(({ path, text }) =>
    text.split('\n').flatMap((line, i) => {
      const isComment = /^\s*(?:\/\/|\/\*\*|\*) /.test(line) && !/https?:|\|/.test(line);
      if (!isComment || line.length <= MAX_COMMENT_WIDTH) return [];
      return [
        `${path}:${i + 1}: a line of a comment has ${line.length} characters: break it before ${MAX_COMMENT_WIDTH}.`,
      ];
    }),
  );
}

/** zod compiles a schema when it reads the first row: one that is made for each query costs more than the query. */
export function rowSchemas(files: readonly SourceFile[]): string[] {
  return typescript(files)
    .filter(({ path }) => path.startsWith('control-plane/'))
    .filter(({ text }) => /(?<!Promise)\.(?:all|one)\(\s*(?:z|[A-Z]\w*)\.\w+\(/.test(withoutComments(text)))
    .map(({ path }) => `${path} makes the schema of a row for each query: make it once, as a constant of the file.`);
}

function typescript(files: readonly SourceFile[]): SourceFile[] {
  return files.filter(({ path }) => /\.tsx?$/.test(path));
}

function lineCount(text: string): number {
  return text.split('\n').length - (text.endsWith('\n') ? 1 : 0);
}
