// What `svc` writes to a terminal. Logs, answers of models and refusals are texts of others, which must give the terminal no orders.
import { printable } from '../../shared/terminal.ts';
import type { SvcDeps } from './command.ts';

/** The only order that `svc` itself gives to a terminal: an empty screen for the next figures. */
export const CLEAR_SCREEN = '\u001b[H\u001b[2J';

/**
 * The same deps without control sequences in what is printed. If the standard output is no terminal, answers stay as they are, byte for byte, because
 * a program reads them.
 */
export function withSafeOutput(deps: Omit<SvcDeps, 'warn'>): SvcDeps {
  const { print, isTerminal } = deps;
  const tell = (text: string): void => deps.tell(safe(text));
  const warned = new Set<string>();
  return {
    ...deps,
    print: isTerminal ? (text) => print(text === CLEAR_SCREEN ? text : safe(text)) : print,
    tell,
    warn: (line) => {
      if (!warned.has(line)) tell(`${line}\n`);
      warned.add(line);
    },
  };
}

/** The text without control sequences. Its lines and tabs stay. */
function safe(text: string): string {
  return text.replaceAll(/[^\n\t]+/g, printable);
}
