// What a form says of a refusal whose rules its fields may show already.
import { expect, test } from 'vitest';
import { ApiError, messageBelow } from '../../../control-plane/console/web/core/api.ts';

const rules = (...fields: string[]): ApiError =>
  new ApiError(422, 'validation_failed', 'email is wrong; name is wrong.', {
    errors: fields.map((field) => ({ field, rule: 'is wrong' })),
  });

test('rules that the fields show are not said again', () => {
  expect(messageBelow(rules('email', 'name'), new Set(['email', 'name', 'password']))).toBe(
    'Correct the fields that are marked.',
  );
});

test('a rule that no field shows is said', () => {
  expect(messageBelow(rules('email', 'name'), new Set(['email']))).toBe('email is wrong; name is wrong.');
});

test('a refusal that is about no field is said', () => {
  const taken = new ApiError(409, 'conflict', 'The name is taken.');
  expect(messageBelow(taken, new Set(['name']))).toBe('The name is taken.');
});
