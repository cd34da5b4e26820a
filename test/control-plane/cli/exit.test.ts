// The next step of a refusal: the options of the command for the members that the API finds at fault.
import { expect, test } from 'vitest';
import { EXIT, inOptions, SvcError } from '../../../control-plane/cli/exit.ts';

const OPTIONS = new Map([
  ['image', '--image'],
  ['name', '--name'],
  ['gpu_count', '--count'],
  ['env', '--env'],
]);

function nextOf(message: string, fields: readonly string[] = []): string | undefined {
  const error = inOptions(new SvcError(EXIT.failed, { code: 'refused', message, fields }), OPTIONS);
  return error instanceof SvcError ? error.refusal.next : undefined;
}

test.each([
  ['The image is not there. Check its name.', ['image'], 'image is --image.'],
  ['The image is not there. Check its name.', [], undefined],
  ['This needs a smaller gpu_count.', [], 'gpu_count is --count.'],
  ['Set `name` to another one.', [], 'name is --name.'],
  ['A path is wrong.', ['env.PATH', 'env.path'], 'env is --env.'],
])('%j with the fields %j leads to %j', (message, fields, next) => {
  expect(nextOf(message, fields)).toBe(next);
});
