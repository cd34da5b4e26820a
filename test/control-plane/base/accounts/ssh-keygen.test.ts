// Compares with the real ssh-keygen: its keys are accepted with the fingerprints that it prints, and other input is refused.
import { existsSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { delimiter, join } from 'node:path';
import fc from 'fast-check';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { readPublicKey } from '../../../../control-plane/base/accounts/public-key.ts';
import { capture } from '../../../kit/capture.ts';
import { KEYS } from './ssh-key-samples.ts';

const folders = (process.env['PATH'] ?? '').split(delimiter);
const isInstalled = folders.some((folder) => existsSync(join(folder, 'ssh-keygen')));

describe.skipIf(!isInstalled)('a key from ssh-keygen', () => {
  let dir: string;
  beforeAll(() => {
    dir = mkdtempSync(join(tmpdir(), 'svc-keys-'));
  });
  afterAll(() => rmSync(dir, { recursive: true }));

  const run = async (...args: string[]): Promise<string> => {
    const { code, stdout, stderr } = await capture(['ssh-keygen', ...args]);
    if (code !== 0) throw new Error(stderr);
    return stdout.toString();
  };
  const make = async (name: string, type: string, bits?: string): Promise<string> => {
    const file = join(dir, name);
    await run(
      '-q',
      '-N',
      '',
      '-C',
      'Zoë with words',
      '-t',
      type,
      ...(bits === undefined ? [] : ['-b', bits]),
      '-f',
      file,
    );
    return file;
  };

  // Specification 2.5: The fingerprint has the SHA256 form.
  // Specification 4.2: public_key as ssh-keygen writes it.
  test.each([
    ['ed25519', undefined],
    ['ecdsa', '256'],
    ['ecdsa', '384'],
    ['ecdsa', '521'],
    ['rsa', '2048'],
    ['rsa', '3072'],
  ])('a new %s key of %s bits has the fingerprint that ssh-keygen -lf prints', async (type, bits) => {
    const file = await make(`${type}${bits}`, type, bits);
    const [, fingerprint] = (await run('-lf', `${file}.pub`)).split(' ');
    const answer = readPublicKey(readFileSync(`${file}.pub`, 'utf8'));
    expect(answer).toMatchObject({ ok: true, key: { fingerprint } });
  });

  // Specification 4.2: What is no OpenSSH public key is rejected.
  test('an RSA key of 1024 bits, a private key and a certificate are refused with the reason', async () => {
    const weak = await make('weak', 'rsa', '1024');
    const ca = await make('ca', 'ed25519');
    const user = await make('user', 'ed25519');
    await run('-q', '-s', ca, '-I', 'id', '-n', 'root', `${user}.pub`);
    const ruleOf = (file: string) => readPublicKey(readFileSync(file, 'utf8'));
    expect(ruleOf(`${weak}.pub`)).toEqual({ ok: false, rule: expect.stringContaining('1024 bits') });
    expect(ruleOf(user)).toEqual({ ok: false, rule: expect.stringContaining('private key') });
    expect(ruleOf(`${user}-cert.pub`)).toEqual({ ok: false, rule: expect.stringContaining('certificate') });
  });

  test.each(['RFC4716', 'PKCS8'])(
    'in the format %s is refused, and the advice of the refusal makes it acceptable',
    async (format) => {
      const file = await make(`as-${format}`, 'ecdsa');
      const exported = join(dir, `${format}.txt`);
      writeFileSync(exported, await run('-e', '-m', format, '-f', `${file}.pub`));
      const refused = readPublicKey(readFileSync(exported, 'utf8'));
      const advice = refused.ok ? '' : (/"ssh-keygen (.*) <file>"/.exec(refused.rule)?.[1] ?? '');
      const converted = await run(...advice.split(' '), exported);
      expect(readPublicKey(converted).ok).toBe(true);
    },
  );
});

test('any input gets an answer, and an accepted key parses the same from its stored form', () => {
  const real = fc.constantFrom(...Object.values(KEYS).map(({ line }) => line));
  const damaged = fc
    .tuple(real, fc.nat(400), fc.string({ maxLength: 4 }))
    .map(([line, at, text]) => line.slice(0, at) + text + line.slice(at + 1));
  fc.assert(
    fc.property(fc.oneof(damaged, fc.string(), fc.string({ unit: 'binary' })), (text) => {
      const answer = readPublicKey(text);
      expect(answer.ok ? readPublicKey(answer.key.line) : answer.rule.length > 0).toEqual(answer.ok ? answer : true);
    }),
    { seed: 7, numRuns: 500 },
  );
});
