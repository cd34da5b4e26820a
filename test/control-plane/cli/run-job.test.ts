// `svc run` and the end of its instance, which ends with its program.
import { expect, test } from 'vitest';
import { awayFor, END, exited, ID, lineOf, play, RUN, svcOf } from './played-api.ts';

test('shows the output of a program that was over before anybody saw its instance run, and exits with its code', async () => {
  const played = play({ ends: [exited(7)], status: 'terminated', logs: [lineOf('one') + lineOf('two') + END] });
  expect(await svcOf(played, ...RUN)).toMatchObject({ code: 7, stdout: 'one\ntwo\n' });
});

test('waits for a program that has ended in an instance that does not run yet', async () => {
  const statuses = ['starting', 'starting', 'stopping'];
  const played = play({
    ends: [exited(7)],
    status: () => statuses.shift() ?? 'terminated',
    logs: [lineOf('one') + END],
  });
  const { code, stdout, stderr } = await svcOf(played, ...RUN);
  expect([code, stdout]).toEqual([7, 'one\n']);
  expect(stderr).toContain(`${ID} starting\n${ID} stopping\n`);
});

test('shows the output of a program that is over in an instance that nobody reaches', async () => {
  const played = play({ ends: [exited(7)], status: 'unreachable', logs: [lineOf('one') + END] });
  expect(await svcOf(played, 'run', '--timeout', '5', ...RUN.slice(1))).toMatchObject({ code: 7, stdout: 'one\n' });
});

test('names the reason of a launch that fails once', async () => {
  const played = play({ ends: [null], status: 'error', reason: 'no such runtime', logs: [] });
  const { code, stderr } = await svcOf(played, ...RUN.slice(0, 1), ...RUN.slice(2));
  expect(code).toBe(5);
  expect(stderr.match(/no such runtime/g)).toHaveLength(1);
});

test('reads the rest of the output of a program that has ended while the API was away', async () => {
  // The client itself tries each request four times.
  const played = play({ ends: [null, exited(0)], logs: [lineOf('one'), ...awayFor(12), lineOf('two') + END] });
  expect(await svcOf(played, ...RUN)).toMatchObject({ code: 0, stdout: 'one\ntwo\n' });
});

test('says so if the rest of the output cannot be read', async () => {
  const played = play({ ends: [null, exited(0)], logs: [lineOf('one'), ...awayFor(200)] });
  const { code, stdout, stderr } = await svcOf(played, ...RUN.filter((word) => word !== '--rm'));
  expect([code, stdout]).toEqual([0, 'one\n']);
  expect(stderr).toContain(`The rest of the log could not be read. Read it: svc logs ${ID}`);
});

test.each([
  [999, false],
  [1_000, true],
])('of %i lines from before the log was opened, it says whether there may be more: %s', async (count, isTold) => {
  const lines = Array.from({ length: count }, (_, i) => lineOf(`${i}`)).join('');
  const late = lineOf('late', '2026-01-01T00:00:09.000000001Z');
  const played = play({ ends: [exited(0)], logs: [lines + late + END] });
  const dated: typeof fetch = async (url, init) => {
    const { body, status } = await played.fetch(url, init);
    return new Response(body, { status, headers: { date: 'Thu, 01 Jan 2026 00:00:09 GMT' } });
  };
  const { stdout, stderr } = await svcOf({ ...played, fetch: dated }, ...RUN);
  expect(stdout.split('\n')).toHaveLength(count + 2);
  expect(stderr.includes('Lines before the last 1000 may be missing')).toBe(isTold);
});

test('launches an instance that ends with its program, so that nothing is left to say or to delete', async () => {
  const played = play({ ends: [null, exited(0)], logs: [lineOf('out') + END] });
  const result = await svcOf(played, ...RUN.filter((word) => word !== '--rm'));
  expect(result).toEqual({ code: 0, stdout: 'out\n', stderr: `${ID}\n${ID} running\n` });
  expect(played.launches).toEqual([expect.objectContaining({ auto_terminate_on_exit: true, image: 'busybox' })]);
  expect(played.asked.filter((request) => request.startsWith('DELETE'))).toEqual([]);
  const failed = await svcOf(play({ ends: [exited(3)], logs: [END] }), 'run', '--json', '--image', 'busybox');
  expect(failed.code).toBe(3);
  expect(JSON.parse(failed.stderr.trim().split('\n').at(-1) ?? '')).not.toHaveProperty('resource_id');
});
