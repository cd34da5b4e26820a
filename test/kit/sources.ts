// Reads the project's own files, for the tests that judge them.
import { globSync, readFileSync, statSync } from 'node:fs';
import { join } from 'node:path';

export interface SourceFile {
  /** Relative to the project, with `/`. */
  path: string;
  text: string;
}

/** Folders and files that are not the project's own text: dependencies, and what .gitignore names. */
const FOREIGN = ['node_modules', '.git', 'coverage', 'dist', '.demo', '.scratch'];

/** Every text file of the project below `root`. */
export function readSources(root: string): SourceFile[] {
  return globSync('**/*', { cwd: root, exclude: (name) => FOREIGN.includes(name) || name.endsWith('.log') })
    .concat(globSync(['.*', '.ci/*'], { cwd: root, exclude: FOREIGN }))
    .map((path) => path.replaceAll('\\', '/'))
    .filter((path) => statSync(join(root, path)).isFile())
    .map((path) => ({ path, text: readFileSync(join(root, path), 'utf8') }))
    .filter((file) => !file.text.includes('\0'));
}

/** The tables that a migration, or code, creates. */
export function createdTables(text: string): string[] {
  return [...text.matchAll(/\bcreate\s+table\s+(?:if\s+not\s+exists\s+)?"?([a-z_]+)/gi)].flatMap(
    ([, table]) => table ?? [],
  );
}

/** The tables that a migration drops. */
export function droppedTables(text: string): string[] {
  return [...text.matchAll(/\bdrop\s+table\s+(?:if\s+exists\s+)?"?([a-z_]+)/gi)].flatMap(([, table]) => table ?? []);
}

/** The code without its comments. Line based, which is exact enough for formatted sources. */
export function withoutComments(text: string): string {
  return text
    .replace(/^\s*\/\*[\s\S]*?\*\//gm, '')
    .replace(/^\s*\/\/.*$/gm, '')
    .replace(/\s\/\/\s.*$/gm, '');
}

export interface Comment {
  place: string;
  text: string;
}

/** Every comment of a source that has lines of its own: runs of `//` lines (`--` in SQL), and blocks. */
export function commentsOf({ path, text }: SourceFile): Comment[] {
  const found = path.endsWith('.sql')
    ? text.matchAll(/(?:^[ \t]*--.*\n?)+/gm)
    : text.matchAll(/^[ \t]*\/\*\*?[\s\S]*?\*\/|(?:^[ \t]*\/\/.*\n?)+/gm);
  return [...found].map((match) => ({
    place: `${path}:${text.slice(0, match.index).split('\n').length}`,
    text: match[0]
      .replace(/^[ \t]*(?:\/\*\*?|\*\/|\*(?!\/)|\/\/|--)[ \t]?/gm, '')
      .replace(/\*\/\s*$/, '')
      .trim(),
  }));
}
