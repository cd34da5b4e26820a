// The rule that a row whose work fails keeps no other row from its turn.
import { type Node, parseSync } from 'oxc-parser';
import type { SourceFile } from './sources.ts';

/** Loops that need no `openRowFailures`, each by its file and the rows it reads, with the reason. */
const WHOLE = new Map([
  ['control-plane/base/db/members.ts of rows', 'one statement, which fails only if the database does'],
  ['control-plane/base/db/migrate.ts of pending', 'a migration needs the ones before it'],
  ['control-plane/models/files/uploads.ts of late', 'one statement, which fails only if the database does'],
  ['control-plane/models/replicas/replicas.ts of ids', 'one statement, which fails only if the database does'],
  ['control-plane/models/videos/driver.ts of await store.dueAt(…)', 'each job that is left has a turn at the engine'],
  ['control-plane/money/metering/metering.ts of uncovered', 'settled() notes a failure and goes on'],
  ['control-plane/rental/webhooks/webhooks.ts of ids', 'deletions, which fail only if the database does'],
  ['control-plane/money/metering/outage-credit.ts of await failedCredits(…)', 'attempt() notes a failure and goes on'],
]);

/** One sentence for each loop that works in a transaction for each row and ends at the first row that fails. */
export function rowTurns(files: readonly SourceFile[]): string[] {
  return files.flatMap((file) =>
    endingLoops(file)
      .filter((name) => !WHOLE.has(name))
      .map((name) => `${name}: a row that fails keeps the others from their turn; use openRowFailures.`),
  );
}

/** Entries of the list of exceptions that no loop needs. */
export function unusedRowTurns(files: readonly SourceFile[]): string[] {
  const found = new Set(files.flatMap(endingLoops));
  return [...WHOLE.keys()].filter((name) => !found.has(name));
}

function endingLoops({ path, text }: SourceFile): string[] {
  if (!/^control-plane\/(?!cli\/|console\/web\/).*(?<!\.test)\.ts$/.test(path) || !text.includes('.tx(')) return [];
  const sourceOf = ({ start, end }: Node): string => text.slice(start, end);
  const { program } = parseSync(path, text);
  const opening = program.body.flatMap((node) =>
    node.type === 'FunctionDeclaration' && node.id !== null && sourceOf(node).includes('.tx(') ? [node.id.name] : [],
  );
  const opens = new RegExp(String.raw`\.tx\(|(?<![.\w])(?:${['-', ...opening].join('|')})\(`);
  const found: string[] = [];
  visit(program, (node) => {
    if (node.type !== 'ForOfStatement' || node.await) return;
    const body = sourceOf(node.body);
    if (!body.includes('await ') || !opens.test(body) || /\.note\(|\.catch\(|\btry \{/.test(body)) return;
    found.push(`${path} of ${sourceOf(node.right).replace(/\(.*\)$/s, '(…)')}`);
  });
  return found;
}

/** Calls `see` with the node and all nodes below it. */
function visit(node: Node, see: (node: Node) => void): void {
  see(node);
  for (const value of Object.values(node)) {
    for (const part of [value].flat()) if (isNode(part)) visit(part, see);
  }
}

function isNode(value: unknown): value is Node {
  return typeof value === 'object' && value !== null && 'type' in value;
}
