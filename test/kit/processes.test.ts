// The process kit: output, readiness, ends and deadlines, on real programs.
import { expect, test } from 'vitest';
import { freePort } from './ports.ts';
import { eventually, httpReady, runProgram, startProgram } from './processes.ts';

const node = process.execPath;

test('waits for a line, and ends the program by its id', async () => {
  const program = startProgram({ command: node, args: ['-e', 'console.log("port 7"); setInterval(() => {}, 1000)'] });
  const match = await program.waitForOutput(/port (\d+)/);
  expect(match[1]).toBe('7');
  expect(await program.stop()).toEqual({ code: null, signal: 'SIGTERM' });
  expect(await program.stop()).toEqual({ code: null, signal: 'SIGTERM' });
});

test('a program that ends before its line is an error with its output', async () => {
  const program = startProgram({ command: node, args: ['-e', 'console.error("no luck"); process.exit(3)'] });
  await expect(program.waitForOutput(/ready/)).rejects.toThrow('no luck');
  expect(await program.exited).toEqual({ code: 3, signal: null });
});

test('a program that ignores SIGTERM is killed after the grace', async () => {
  const script = 'process.on("SIGTERM", () => {}); console.log("up"); setInterval(() => {}, 1000)';
  const program = startProgram({ command: node, args: ['-e', script] });
  await program.waitForOutput(/up/);
  expect(await program.stop('SIGTERM', 50)).toEqual({ code: null, signal: 'SIGKILL' });
});

test('a program that does not exist fails each wait', async () => {
  const program = startProgram({ command: 'no-such-program' });
  await expect(program.exited).rejects.toThrow('ENOENT');
  await expect(program.waitForOutput(/x/)).rejects.toThrow('ENOENT');
});

test('runs to the end with input, and rejects with the output of a failure', async () => {
  const script = 'process.stdin.pipe(process.stdout)';
  expect(await runProgram({ command: node, args: ['-e', script], input: 'hello' })).toBe('hello');
  await expect(runProgram({ command: node, args: ['-e', 'throw new Error("broken")'] })).rejects.toThrow('broken');
});

test('an HTTP server is ready when it answers, and not before', async () => {
  const port = await freePort();
  await expect(httpReady(`http://127.0.0.1:${port}/`, 50)).rejects.toThrow('within 150 ms');
  const script = `setTimeout(() => require("node:http").createServer((q, s) => s.end()).listen(${port}, "127.0.0.1"), 50)`;
  const program = startProgram({ command: node, args: ['-e', script] });
  await httpReady(`http://127.0.0.1:${port}/`);
  await program.stop();
});

test('a wait that fails says what the last try said', async () => {
  const wait = eventually('miracle', 30, () => Promise.reject(new Error('not today')));
  await expect(wait).rejects.toMatchObject({ message: 'no miracle within 90 ms', cause: { message: 'not today' } });
});
