// `svc run` and the end of its instance, which ends with its program.
import { expect, test } from 'vitest';
import { END, exited, ID, lineOf, play, RUN, svcOf } from './played-api.ts';

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
