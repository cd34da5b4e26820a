// `svc chat`: asks a model one question, and prints the answer while it arrives.
import type { Command } from 'commander';
import { z } from 'zod';
import { type CommonOptions, signedIn, type SvcDeps, withCommon } from './command.ts';
import { eventsOf } from '../../shared/event-reader.ts';

interface ChatOptions extends CommonOptions {
  system?: string;
  maxTokens?: string;
}

const Chunk = z.looseObject({
  choices: z.array(z.looseObject({ delta: z.looseObject({ content: z.string().nullish() }) })).optional(),
});

export function addChatCommand(program: Command, deps: SvcDeps): void {
  withCommon(program.command('chat <model> [text...]'))
    .description('ask a model; without a text, standard input is the question')
    .option('--system <text>', 'how it should behave')
    .option('--max-tokens <count>', 'the most that it may answer')
    .action(async (model: string, words: string[], options: ChatOptions) => {
      const content = words.length > 0 ? words.join(' ') : (await deps.readInput()).trim();
      const messages = [
        ...(options.system === undefined ? [] : [{ role: 'system', content: options.system }]),
        { role: 'user', content },
      ];
      const limit = options.maxTokens === undefined ? {} : { max_tokens: Number(options.maxTokens) };
      const response = await signedIn(deps, options).open({
        method: 'POST',
        path: '/chat/completions',
        body: { model, messages, stream: true, ...limit },
        signal: deps.interrupted,
        // A repeat would cause a second answer, which must be paid too.
        isOnce: true,
      });
      for await (const { data } of eventsOf(response)) write(data, options, deps);
      if (options.json !== true) deps.print('\n');
    });
}

/** If `--json` is given, the chunks themselves are written, one on each line. */
function write(data: unknown, { json }: ChatOptions, { print }: SvcDeps): void {
  if (data === undefined) return;
  if (json === true) return print(`${JSON.stringify(data)}\n`);
  const [choice] = Chunk.safeParse(data).data?.choices ?? [];
  print(choice?.delta.content ?? '');
}
