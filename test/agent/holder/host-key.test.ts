// Keys that we make: ssh2 alone makes an unreadable one in 256.
import ssh2 from 'ssh2';
import { expect, test } from 'vitest';
import { makeKeyPair } from '../../../agent/holder/host-key.ts';

const MANY = 1_500;

test('every host key can be read again, and its public half is whole', () => {
  for (let i = 0; i < MANY; i += 1) {
    const pair = makeKeyPair();
    expect(ssh2.utils.parseKey(pair.private)).not.toBeInstanceOf(Error);
    expect(ssh2.utils.parseKey(pair.public)).not.toBeInstanceOf(Error);
  }
});
