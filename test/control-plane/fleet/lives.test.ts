// Signs of life of workloads: when their host last answered, and who uses their SSH servers.
import { PassThrough } from 'node:stream';
import { expect, test } from 'vitest';
import { openLives } from '../../../control-plane/fleet/link/lives.ts';
import { SSH_LOGIN_MS_MAX } from '../../../shared/limits.ts';
import { virtualClock } from '../../kit/virtual-clock.ts';

test('new streams are counted by networks until they must have logged in, and each stream until it closes', async () => {
  const clock = virtualClock(1_000);
  const lives = openLives(new Map(), clock);
  const counts = (): number[] => {
    const { sshStreams, sshNetworks } = lives.of('m', 'w');
    return [sshStreams, sshNetworks];
  };
  const streams = ['192.0.2.1', '192.0.2.1', '192.0.2.2'].map((network) => {
    const stream = new PassThrough();
    lives.noteSsh('w', stream, network);
    return stream;
  });
  lives.noteSsh('another', new PassThrough(), '192.0.2.3');
  expect(counts()).toEqual([3, 2]);
  await clock.advance(SSH_LOGIN_MS_MAX - 1);
  lives.noteSsh('w', new PassThrough(), '192.0.2.4');
  expect(counts()).toEqual([4, 3]);
  await clock.advance(1);
  expect(counts()).toEqual([4, 1]);
  for (const stream of streams) stream.destroy();
  await expect.poll(counts).toEqual([1, 1]);
});

test('the last sign of life is an answer of the machine or bytes of the workload, and is kept after the link', async () => {
  const clock = virtualClock(1_000);
  const sessions = new Map([['m', { life: () => ({ isAnswering: true, upSinceMs: 500, lastMs: 900 }) }]]);
  const lives = openLives(sessions, clock);
  expect(lives.of('m', 'w')).toMatchObject({ isAnswering: true, upSinceMs: 500, lastMs: 900 });
  lives.noteBytes('w');
  expect(lives.of('m', 'w').lastMs).toBe(1_000);
  expect(lives.of('m', 'another').lastMs).toBe(900);
  sessions.clear();
  lives.keep('m', 950);
  expect(lives.of('m', 'another')).toMatchObject({ isAnswering: false, upSinceMs: null, lastMs: 950 });
  expect(lives.of('unknown', 'x').lastMs).toBeNull();
});
