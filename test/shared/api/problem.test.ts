// The words of broken rules, as people read them in a refusal.
import { expect, test } from 'vitest';
import { z } from 'zod';
import { Email } from '../../../shared/api/auth.ts';
import { fieldErrors } from '../../../shared/api/problem.ts';

test.each([
  ['an e-mail address', Email, 'bob@example', 'must be an address like you@example.com'],
  ['a URL', z.url(), 'nowhere', 'must be a URL'],
  ['a UUID', z.uuid(), '1', 'must be a UUID'],
  ['a time', z.iso.datetime(), 'soon', 'must be an ISO 8601 UTC time like 2026-01-31T12:00:00Z'],
  ['a day', z.iso.date(), 'soon', 'must be a date like 2026-01-31'],
  ['a network', z.cidrv4(), 'home', 'must be a valid cidrv4'],
  ['a text with a pattern', z.string().regex(/^[a-z]+$/), 'A1', 'has a wrong form'],
  ['an identifier', z.ulid(), '-', 'must be a valid ulid'],
])('the rule of %s is in words', (_what, schema, given, rule) => {
  const { error } = z.strictObject({ of: schema }).safeParse({ of: given });
  expect(error && fieldErrors(error, { of: given }, 'body')).toEqual([{ field: 'of', rule }]);
});
