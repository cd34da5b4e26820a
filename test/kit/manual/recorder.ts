// Runs a command of the documents in a shell whose programs only write down what they were given: the shell itself reads the command.
import { chmodSync, mkdirSync, readFileSync, rmSync, symlinkSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { capture } from '../capture.ts';
import type { Command } from './documents.ts';

/** Name of the program and its arguments. */
export type Call = readonly [program: string, ...args: string[]];

export interface Recorder {
  /** The calls of programs in the order in which they came. Throws if the shell finds a fault or no such program. */
  record(command: Command): Promise<Call[]>;
}

/** Programs that are not called, with those that are real because they only read or write below the scratch folder. */
const WRITTEN_DOWN =
  'curl npm npx svc svc-control-plane svc-agent ssh scp sftp ssh-keygen tar systemctl pg_dump dropdb createdb pg_restore psql nft grep sleep apt-get docker mkdir chown cp';
const REAL = { cat: '/bin/cat', install: '/usr/bin/install' };

const STUB = `#!/bin/sh
{ printf '%s\\0' "\${0##*/}" "$@"; printf '\\036\\0'; } >>"$RECORD"
`;
const PACKAGE_FOLDER = 'gpu-rental-service-0.1.0-linux-x64';

/** `dir` is new. `sampleOf` gives what stands for a placeholder. */
export function openRecorder(dir: string, sampleOf: (placeholder: string) => string): Recorder {
  const [bin, home, work, record] = ['bin', 'home', 'work', 'record'].map((name) => join(dir, name)) as [
    string,
    string,
    string,
    string,
  ];
  for (const folder of [bin, join(home, '.ssh'), join(work, PACKAGE_FOLDER, 'try-out')])
    mkdirSync(folder, { recursive: true });
  const stub = (file: string): void => {
    writeFileSync(file, STUB);
    chmodSync(file, 0o755);
  };
  for (const name of WRITTEN_DOWN.split(' ')) stub(join(bin, name));
  for (const [name, target] of Object.entries(REAL)) symlinkSync(target, join(bin, name));
  stub(join(work, 'install.sh'));
  for (const name of ['id_ed25519.pub', 'gpu.pub']) {
    writeFileSync(join(home, '.ssh', name), 'ssh-ed25519 AAAA laptop\n');
  }
  const env = {
    PATH: bin,
    HOME: home,
    RECORD: record,
    API: 'https://api.example.com/v1',
    AUTH: 'Authorization: Bearer svc_live_sample',
    JSON: 'Content-Type: application/json',
  };
  return {
    record: async ({ text }) => {
      rmSync(record, { force: true });
      writeFileSync(record, '');
      const filled = fillPlaceholders(text, sampleOf);
      const argv = ['/bin/sh', '-c', `cd "$1" && eval "$2"`, 'sh', work, filled];
      const { code, stderr } = await capture(argv, { env, timeoutMs: 10_000 });
      if (code !== 0) throw new Error(`${text}\nends with ${code}: ${stderr}`);
      return readFileSync(record, 'utf8')
        .split('\u001e\0')
        .filter((call) => call !== '')
        .map((call) => call.split('\0').slice(0, -1) as [string, ...string[]]);
    },
  };
}

/** Replaces each `<name>`. */
export function fillPlaceholders(text: string, valueOf: (placeholder: string) => string): string {
  return text.replaceAll(/<([a-z]+(?: [a-z]+)*)>/gi, (_all, name: string) => valueOf(name));
}
