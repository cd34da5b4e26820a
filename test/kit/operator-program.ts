// The operator's command line inside the process of a test: the same commands and options, without a start of Node for each command.
import { Command } from 'commander';
import type { CommandDeps } from '../../control-plane/admin/command.ts';
import { addOperatorCommands } from '../../control-plane/admin/commands.ts';

/** Returns what the command prints. @throws the error of a failed command */
export async function runOperatorProgram(deps: Omit<CommandDeps, 'print'>, words: readonly string[]): Promise<string> {
  const printed: string[] = [];
  const program = new Command();
  addOperatorCommands(program, { ...deps, print: (text) => void printed.push(text) });
  const quiet = (command: Command): void => {
    command.exitOverride().configureOutput({ writeErr: () => undefined });
    command.commands.forEach(quiet);
  };
  quiet(program);
  await program.parseAsync([...words], { from: 'user' });
  return printed.join('');
}
