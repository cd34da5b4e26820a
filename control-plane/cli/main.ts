// The process of the command `svc`: its terminal, its signals and its exit code.
import { spawn } from 'node:child_process';
import { addAbortSignal } from 'node:stream';
import { text } from 'node:stream/consumers';
import { systemClock } from '../../shared/clock.ts';
import { codeOf, messageOf } from '../../shared/errors.ts';
import { createIds } from '../../shared/ids.ts';
import { systemRng } from '../../shared/rng.ts';
import { environment, openLogins, variable } from './config.ts';
import { EXIT } from './exit.ts';
import { runSvc } from './svc.ts';

/** `timeout`, npm and shells may send one signal twice: to the process, and to its group. */
const SAME_SIGNAL_MS = 1_000;

const clock = systemClock();
const interrupted = watchSignals();
const goOnUnread = watchOutput();

const code = await runSvc(process.argv.slice(2), {
  logins: openLogins(environment()),
  clock,
  ids: createIds(clock, systemRng()),
  fetch,
  print: (words) => void process.stdout.write(words),
  tell: (words) => void process.stderr.write(words),
  variable,
  readInput: () => text(addAbortSignal(interrupted, process.stdin)),
  isTerminal: process.stdout.isTTY,
  interrupted,
  goOnUnread,
  runProgram: (command, args, { quiet } = { quiet: false }) =>
    new Promise((resolve, reject) => {
      const child = spawn(command, args, { stdio: quiet ? 'ignore' : 'inherit' });
      // A terminal sends Ctrl-C to the program by itself. Other signals would end only this process.
      const passOn = (signal: NodeJS.Signals): void => void child.kill(signal);
      process.on('SIGTERM', passOn).on('SIGHUP', passOn);
      child.once('error', reject);
      child.once('exit', (code) => resolve(code ?? EXIT.interrupted));
      child.once('close', () => process.off('SIGTERM', passOn).off('SIGHUP', passOn));
    }),
});
process.exitCode ||= code;

/** Aborts at the first Ctrl-C, SIGTERM or SIGHUP (a terminal that is closed). The second signal ends the process at once. */
function watchSignals(): AbortSignal {
  const interrupting = new AbortController();
  let firstMs: number | undefined;
  for (const signal of ['SIGINT', 'SIGTERM', 'SIGHUP'] as const) {
    process.on(signal, () => {
      firstMs ??= clock.monotonicMs();
      if (clock.monotonicMs() - firstMs > SAME_SIGNAL_MS) process.exit(EXIT.interrupted);
      interrupting.abort();
    });
  }
  return interrupting.signal;
}

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
