// Code of screens that comes when it is not wanted any more: the screen that is shown by then must stay.
import { expect, test } from 'vitest';

type Found = { code: string } | { error: { code: string } };
interface Code {
  tellLoaded(code: Promise<string>, tell: (found: Found) => void): () => void;
}

/** The sources of the console are typed for a browser, so they are loaded by name. */
const CODE_FILE: string = '../../../control-plane/console/web/core/code.ts';
const { tellLoaded } = (await import(CODE_FILE)) as Code;

const turns = (): Promise<void> => new Promise((resolve) => setImmediate(resolve));

test('a screen whose code comes after the code of the next one does not take its place', async () => {
  const told: Found[] = [];
  const [slow, fast] = [Promise.withResolvers<string>(), Promise.withResolvers<string>()];
  const leave = tellLoaded(slow.promise, (found) => told.push(found));
  leave();
  tellLoaded(fast.promise, (found) => told.push(found));
  fast.resolve('next');
  slow.resolve('first');
  await turns();
  expect(told).toEqual([{ code: 'next' }]);
});

test('a screen whose code fails to load after the person has left it says nothing', async () => {
  const told: Found[] = [];
  const code = Promise.withResolvers<string>();
  const leave = tellLoaded(code.promise, (found) => told.push(found));
  leave();
  code.reject(new TypeError('Failed to fetch dynamically imported module'));
  await turns();
  expect(told).toEqual([]);
});

test('code that fails to load is told as a refusal', async () => {
  const told: Found[] = [];
  tellLoaded(Promise.reject(new TypeError('Failed to fetch dynamically imported module')), (found) => told.push(found));
  await turns();
  expect(told).toMatchObject([{ error: { code: 'code_not_loaded' } }]);
});
