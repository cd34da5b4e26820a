// The process of the command `svc`: its terminal, its signals and its exit code.
import { spawn } from 'node:child_process';
import { text } from 'node:stream/consumers';
import { systemClock } from '../../shared/clock.ts';
import { createIds } from '../../shared/ids.ts';
import { systemRng } from '../../shared/rng.ts';
import { environment, openLogins } from './config.ts';
import { EXIT } from './exit.ts';
import { runSvc } from './svc.ts';

const clock = systemClock();
const interrupting = new AbortController();
process.on('SIGINT', () => {
  // The second Ctrl-C ends the process at once.
  if (interrupting.signal.aborted) process.exit(EXIT.interrupted);
  interrupting.abort();
});
// It is no failure if the reader of the output, such as `head`, has ended.
process.stdout.on('error', () => process.exit(EXIT.done));

process.exitCode = await runSvc(process.argv.slice(2), {
  logins: openLogins(environment()),
  clock,
  ids: createIds(clock, systemRng()),
  fetch,
  print: (words) => void process.stdout.write(words),
  tell: (words) => void process.stderr.write(words),
  readInput: () => text(process.stdin),
  isTerminal: process.stdout.isTTY,
  interrupted: interrupting.signal,
  runProgram: (command, args) =>
    new Promise((resolve, reject) => {
      const child = spawn(command, args, { stdio: 'inherit' });
      child.once('error', reject);
      child.once('exit', (code) => resolve(code ?? EXIT.interrupted));
    }),
});
