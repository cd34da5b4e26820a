// What the dialog of a decision calls the row that it is about.
import { expect, test } from 'vitest';
import { calledOf } from '../../../control-plane/console/web/operator/verbs.ts';

test.each([
  ['a row with a name', { id: 'o-1', name: 'Acme' }, 'o-1', 'Acme (o-1)'],
  ['a row without a name', { machine_id: 'm-1' }, 'm-1', 'm-1'],
  ['a row whose name is empty', { id: 'u-1', name: '' }, 'u-1', 'u-1'],
  ['a row whose name is its id', { name: 'sweep' }, 'sweep', 'sweep'],
])('%s is called by its name and its id', (_what, row, id, called) => {
  expect(calledOf(row, id)).toBe(called);
});
