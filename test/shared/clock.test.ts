// The real clock: a time to wait for that is over already.
import { expect, test } from 'vitest';
import { systemClock } from '../../shared/clock.ts';

test('a time that is over is not waited for, and Node has nothing to warn about', async () => {
  const warnings: string[] = [];
  const note = ({ name }: Error): void => void warnings.push(name);
  process.on('warning', note);
  const clock = systemClock();
  await clock.sleep(-1_000);
  await new Promise<void>((resolve) => void clock.after(-1_000, resolve));
  await clock.nextTurn();
  process.off('warning', note);
  expect(warnings).toEqual([]);
});
