// Runs a command of the operator against a small world, without a process and a socket.
import { Command } from 'commander';
import { addOperatorCommands } from '../../control-plane/admin/commands.ts';
import { openOperator } from './operator.ts';
import type { World } from './world.ts';

/** What the command prints; throws the error of a failed command. `onAsk` gets the address of each request. */
export async function runCommand(
  world: World,
  words: readonly string[],
  onAsk: (url: string) => void = () => undefined,
): Promise<string> {
  const printed: string[] = [];
  const { http } = openOperator(world);
  const program = new Command();
  addOperatorCommands(program, {
    ask: async (_config, request) => {
      onAsk(request.url);
      return http.inject(request);
    },
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
