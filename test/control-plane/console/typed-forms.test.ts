// Every form of the console keeps what was typed when the session ends: its fields come from `useTyped`.
import { globSync, readFileSync } from 'node:fs';
import { fileURLToPath } from 'node:url';
import { expect, test } from 'vitest';

const WEB = fileURLToPath(new URL('../../../control-plane/console/web/', import.meta.url));

/** Files whose fields are not kept, and why. */
const NOT_KEPT: Record<string, string> = {
  'account/device.tsx': 'a code that is good once',
  'account/second-factor.tsx': 'a code that is good once',
  'account/security.tsx': 'passwords',
  'account/sign-in.tsx': 'a password, before there is a session',
  'account/step-up.tsx': 'a password or a code',
};

const FIELD = /<(?:Field|TextField|Select)\b/;

/** Files with a form that has fields, by their path in the folder of the console. */
const forms = globSync('**/*.tsx', { cwd: WEB })
  .toSorted()
  .map((path) => ({ path, text: readFileSync(WEB + path, 'utf8') }))
  .filter(({ path, text }) => path !== 'parts/forms.tsx' && /<Form\b/.test(text) && FIELD.test(text));

test('each form keeps what was typed, or is named here with the reason', () => {
  const losing = forms.filter(({ text }) => !text.includes('useTyped')).map(({ path }) => path);
  expect(losing).toEqual(Object.keys(NOT_KEPT));
});

test('only a secret, and the words that confirm a deletion, are fields without it', () => {
  const unkept = forms
    .filter(({ path }) => !(path in NOT_KEPT))
    .flatMap(({ path, text }) =>
      [...text.matchAll(/const \[\w+, (set\w+)\] = useState/g)]
        .filter(([, setter]) => text.includes(`onValue={${setter ?? ''}}`))
        .map(([, setter]) => `${path} ${setter ?? ''}`),
    );
  expect(unkept).toEqual(['customer/instance-actions.tsx setTyped', 'customer/registry-credentials.tsx setPassword']);
});
