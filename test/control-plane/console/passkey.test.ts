// At which host names the console offers passkeys: a browser takes none at an IP address.
import { expect, test } from 'vitest';
import { takesPasskeys } from '../../../control-plane/console/web/core/passkey.ts';

test.each([
  ['localhost', true],
  ['console.example.com', true],
  ['127.0.0.1', false],
  ['10.20.0.3', false],
  ['[::1]', false],
  ['[2001:db8::1]', false],
])('the host %s takes passkeys: %s', (hostname, takes) => {
  expect(takesPasskeys(hostname)).toBe(takes);
});
