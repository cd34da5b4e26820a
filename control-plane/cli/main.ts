// The process of the command `svc`: its terminal, its signals and its exit code.
import { spawn } from 'node:child_process';
import { addAbortSignal } from 'node:stream';
import { text } from 'node:stream/consumers';
import { systemClock } from '../../shared/clock.ts';
import { codeOf, messageOf } from '../../shared/errors.ts';
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
const goOnUnread = watchOutput();

const code = await runSvc(process.argv.slice(2), {
  logins: openLogins(environment()),
  clock,
  ids: createIds(clock, systemRng()),
  fetch,
  print: (words) => void process.stdout.write(words),
  tell: (words) => void process.stderr.write(words),
  readInput: () => text(addAbortSignal(interrupting.signal, process.stdin)),
  isTerminal: process.stdout.isTTY,
  interrupted: interrupting.signal,
  goOnUnread,
  runProgram: (command, args, { quiet } = { quiet: false }) =>
    new Promise((resolve, reject) => {
      const child = spawn(command, args, { stdio: quiet ? 'ignore' : 'inherit' });
      child.once('error', reject);
      child.once('exit', (code) => resolve(code ?? EXIT.interrupted));
    }),
});
process.exitCode ||= code;

/** Ends the process if its output cannot be written. After a call of the returned function, the command goes on unread. */
function watchOutput(): () => void {
  let goesOn = false;
  let isBroken = false;
  process.stdout.on('error', (error) => {
    // It is no failure if the reader of the output, such as `head`, has ended.
    if (codeOf(error) !== 'EPIPE') {
      if (!isBroken) process.stderr.write(`svc: the output cannot be written: ${messageOf(error)}\n`);
      isBroken = true;
      process.exitCode = EXIT.failed;
    }
    if (!goesOn) process.exit(isBroken ? EXIT.failed : EXIT.done);
  });
  // Nobody is left to whom this could be told.
  process.stderr.on('error', () => undefined);
  return () => void (goesOn = true);
}
