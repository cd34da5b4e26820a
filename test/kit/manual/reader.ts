// A reader of the documents who pastes each command into a shell: variables stay, ids of earlier answers are filled in, daemons stay up.
import { chmodSync, mkdirSync, readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { capture } from '../capture.ts';
import { openDaemon, type Daemon } from '../daemon.ts';
import type { Command } from './documents.ts';
import { fillPlaceholders } from './recorder.ts';

export interface Answer {
  command: string;
  output: string;
}

/** The command whose answer holds the value of a placeholder: the first or the latest of them. */
export interface Source {
  of: RegExp;
  value: RegExp;
  which: 'first' | 'latest';
}

export interface ReaderOptions {
  /** New; the reader's home and working directory are below it. */
  dir: string;
  /** Programs in front of PATH: name -> a script for sh. */
  programs: Record<string, string>;
  placeholders: Record<string, Source | string>;
  /** What the documents name and this machine has elsewhere: addresses, images, files. */
  elsewhere: readonly (readonly [written: string, here: string])[];
  /** Commands that stay up, and what shows that they are ready. */
  daemons: readonly { command: RegExp; name: string; ready: () => Promise<boolean> }[];
}

export interface Reader {
  home: string;
  /** Throws with everything that was printed if the exit code is not 0. */
  run(command: Pick<Command, 'text'>): Promise<string>;
  /** Ends the daemons, the latest first. */
  stop(): Promise<void>;
}

const COMMAND_MS_MAX = 60_000;

export function openReader(options: ReaderOptions): Reader {
  const { dir, placeholders, elsewhere } = options;
  const [bin, home, state] = [join(dir, 'bin'), join(dir, 'home'), join(dir, 'exports')];
  for (const folder of [bin, join(home, '.ssh')]) mkdirSync(folder, { recursive: true, mode: 0o700 });
  writeFileSync(state, '');
  for (const [name, script] of Object.entries(options.programs)) {
    writeFileSync(join(bin, name), `#!/bin/sh\n${script}\n`);
    chmodSync(join(bin, name), 0o755);
  }
  const env = { HOME: home, PATH: `${bin}:${process.env['PATH'] ?? ''}` };
  const answers: Answer[] = [];
  const daemons: Daemon[] = [];

  const valueOf = (placeholder: string): string => {
    const source = placeholders[placeholder];
    if (source === undefined) throw new Error(`nobody says what <${placeholder}> stands for`);
    if (typeof source === 'string') return source;
    const found = answers
      .filter(({ command }) => source.of.test(command))
      .flatMap(({ output }) => source.value.exec(output)?.slice(-1) ?? []);
    const value = source.which === 'first' ? found[0] : found.at(-1);
    if (value === undefined) throw new Error(`no answer has shown <${placeholder}> yet`);
    return value;
  };
  const shellLine = (text: string, around: (filled: string) => string): string[] => {
    const here = elsewhere.reduce((all, [written, put]) => all.replaceAll(written, put), text);
    const filled = fillPlaceholders(here, valueOf);
    return ['bash', '-c', `. "$1"; cd "$HOME"; ${around(filled)}`, 'bash', state];
  };

  return {
    home,
    run: async ({ text }) => {
      const daemon = options.daemons.find(({ command }) => command.test(text));
      if (daemon !== undefined) {
        const argv = shellLine(text, (filled) => `exec ${filled}`);
        const started = openDaemon({ ...daemon, argv, env, logPath: join(dir, `${daemon.name}.log`) });
        daemons.push(started);
        await started.start();
        return '';
      }
      const argv = shellLine(text, (filled) => `set -e\n${filled}\nexport -p >"$1"`);
      const { code, stdout, stderr } = await capture(argv, { env, timeoutMs: COMMAND_MS_MAX });
      const output = stdout.toString();
      if (code !== 0) throw new Error(`${text}\nends with ${code}\n${stderr}\n${output.slice(-2_000)}`);
      answers.push({ command: text, output });
      return output;
    },
    stop: async () => {
      for (const daemon of daemons.toReversed()) await daemon.stop();
    },
  };
}

/** The log of a daemon that the reader has started. */
export function logOf(dir: string, name: string): string {
  return readFileSync(join(dir, `${name}.log`), 'utf8')
    .split('\n')
    .slice(-30)
    .join('\n');
}
