// `svc completion`: a script for the shell, which asks the program itself what may come next.
import type { Command } from 'commander';
import type { SvcDeps } from './command.ts';
import { EXIT, SvcError } from './exit.ts';

const SCRIPTS: Readonly<Record<string, string>> = {
  bash: `_svc() {
  COMPREPLY=($(compgen -W "$(svc complete -- "\${COMP_WORDS[@]:1:COMP_CWORD-1}" 2>/dev/null)" -- "\${COMP_WORDS[COMP_CWORD]}"))
}
complete -o default -F _svc svc
`,
  zsh: `#compdef svc
_svc() {
  local -a words_
  words_=(\${(f)"$(svc complete -- "\${words[@]:1:$((CURRENT-2))}" 2>/dev/null)"})
  compadd -a words_
}
compdef _svc svc
`,
  fish: `complete -c svc -f -a '(svc complete -- (commandline -opc)[2..] 2>/dev/null)'
`,
};

export function addCompletionCommands(program: Command, deps: SvcDeps): void {
  program
    .command('completion <shell>')
    .description(`print the completion script for ${Object.keys(SCRIPTS).join(', ')}`)
    .action((shell: string) => {
      const script = SCRIPTS[shell];
      if (script === undefined) {
        const message = `there is no completion for ${shell}, only for ${Object.keys(SCRIPTS).join(', ')}`;
        throw new SvcError(EXIT.usage, { code: 'usage', message });
      }
      deps.print(script);
    });
  program.command('complete [words...]', { hidden: true }).action((words: string[]) =>
    deps.print(
      nextWords(program, words)
        .map((word) => `${word}\n`)
        .join(''),
    ),
  );
}

/** The commands and options that may follow these words. */
function nextWords(program: Command, words: readonly string[]): string[] {
  let command = program;
  for (const word of words) command = command.commands.find((each) => each.name() === word) ?? command;
  const names = command.commands.map((each) => each.name()).filter((name) => name !== 'complete');
  const flags = command.options.map(({ long }) => long).filter((flag) => flag !== undefined && flag !== null);
  return [...names, ...flags];
}
