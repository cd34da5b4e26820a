// The operator's commands over a small world, from the command line to the rooms.
import type { InjectedRequest } from '../../control-plane/base/http/server.ts';
import { openOperator } from './operator.ts';
import { runOperatorProgram } from './operator-program.ts';
import type { World } from './world.ts';

/** What the command prints. `asked` gets the URL of each request. @throws the error of a failed command */
export async function runCommand(world: World, words: readonly string[], asked: string[] = []): Promise<string> {
  const { http } = openOperator(world);
  const deps = {
    ask: async (_config: string | undefined, request: InjectedRequest) => {
      asked.push(request.url);
      return http.inject(request);
    },
    readFile: () => '',
    backup: async () => ({}),
    now: () => world.clock.now(),
  };
  return runOperatorProgram(deps, words);
}
