// The operator's commands over a small world, from the command line to the rooms.
import { Command } from 'commander';
import { addOperatorCommands } from '../../control-plane/admin/commands.ts';
import { openOperator } from './operator.ts';
import type { World } from './world.ts';

/** What the command prints. `asked` gets the URL of each request. @throws the error of a failed command */
export async function runCommand(world: World, words: readonly string[], asked: string[] = []): Promise<string> {
  const printed: string[] = [];
  const { http } = openOperator(world);
  const program = new Command();
  addOperatorCommands(program, {
    ask: async (_config, request) => {
      asked.push(request.url);
      return http.inject(request);
    },
    readFile: () => '',
    backup: async () => ({}),
    print: (text) => void printed.push(text),
    now: () => world.clock.now(),
  });
  const quiet = (command: Command): void => {
    command.exitOverride().configureOutput({ writeErr: () => undefined });
    command.commands.forEach(quiet);
  };
  quiet(program);
  await program.parseAsync([...words], { from: 'user' });
  return printed.join('');
}
