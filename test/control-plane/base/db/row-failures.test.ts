// Work on many rows: one that fails keeps no other from its turn, and a database that is away ends the work at once.
import { expect, test } from 'vitest';
import { DbError } from '../../../../control-plane/base/db/db.ts';
import { openRowFailures } from '../../../../control-plane/base/db/row-failures.ts';

const broken = (reason: string): Promise<never> => Promise.reject(new Error(reason));

test('nothing is thrown if nothing has failed', async () => {
  const failures = openRowFailures();
  await failures.note('the row 1 was not done', Promise.resolve());
  expect(failures.throwAll).not.toThrow('the row 1 was not done');
});

test('the failures of all rows are thrown at the end, each with what was not done and why', async () => {
  const failures = openRowFailures();
  await failures.note('the row 1 was not done', broken('it is odd'));
  await failures.note('the row 2 was not done', Promise.resolve());
  await failures.note('the row 3 was not done', broken('it is even'));
  expect(failures.throwAll).toThrow(
    new AggregateError(
      [
        new Error('the row 1 was not done', { cause: new Error('it is odd') }),
        new Error('the row 3 was not done', { cause: new Error('it is even') }),
      ],
      'the row 1 was not done; the row 3 was not done',
    ),
  );
});

test('the error of a database that is away is thrown at once', async () => {
  const failures = openRowFailures();
  const away = Promise.reject(new DbError('unavailable', 'the database is away'));
  await expect(failures.note('the row 1 was not done', away)).rejects.toThrow('the database is away');
});
