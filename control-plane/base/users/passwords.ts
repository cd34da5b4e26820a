// Passwords, hashed with argon2id. Few hashes run at once, so that tries to sign in cannot take all memory and processors.
import { argon2, timingSafeEqual } from 'node:crypto';
import { promisify } from 'node:util';
import type { Clock } from '../../../shared/clock.ts';
import { fail } from '../../../shared/errors.ts';
import type { Ids } from '../../../shared/ids.ts';
import { openSemaphore } from '../../../shared/semaphore.ts';

/** The recommendation of OWASP. A hash takes about 30 ms. */
const COST = { memory: 19_456, passes: 2, parallelism: 1, tagLength: 32 };
const SALT_BYTES = 16;
const AT_ONCE_MAX = 2;
/** The longest wait for the hashes of others: about 300 hashes. */
const WAIT_MS_MAX = 5_000;
/** Used if there is no password, so that the answer takes the same time. No password has this hash. */
const NO_HASH = `m=${COST.memory},t=${COST.passes},p=${COST.parallelism}$${Buffer.alloc(SALT_BYTES).toString('base64url')}$${Buffer.alloc(COST.tagLength).toString('base64url')}`;

export interface Passwords {
  /** @throws ServiceError `unavailable` if too many others wait */
  hash(password: string): Promise<string>;
  /** If there is no stored hash, the answer is false and takes the same time. @throws ServiceError `unavailable` if too many others wait */
  fits(password: string, stored: string | undefined): Promise<boolean>;
}

export function openPasswords({ clock, ids }: { clock: Clock; ids: Ids }): Passwords {
  const semaphore = openSemaphore(clock, AT_ONCE_MAX);
  const inTurn = async <T>(work: () => Promise<T>): Promise<T> => {
    const done = await semaphore.run('argon2', WAIT_MS_MAX, async () => ({ value: await work() }));
    if (done !== undefined) return done.value;
    return fail('unavailable', {
      detail: 'Too many people are signing in at the moment. Try again in a few seconds.',
      retryAfterSeconds: WAIT_MS_MAX / 1000,
    });
  };
  return {
    hash: (password) => inTurn(() => hashOf(password, COST, Buffer.from(ids.secret(SALT_BYTES), 'base64url'))),
    fits: (password, stored = NO_HASH) =>
      inTurn(async () => {
        const { cost, salt, tag } = read(stored);
        const given = read(await hashOf(password, { ...COST, ...cost, tagLength: tag.length }, salt)).tag;
        return timingSafeEqual(given, tag);
      }),
  };
}

const derive = promisify(argon2);

/** The hash has the form of a PHC string, so that the costs can be raised later. */
async function hashOf(password: string, cost: typeof COST, salt: Buffer): Promise<string> {
  const tag = await derive('argon2id', { message: password.normalize('NFKC'), nonce: salt, ...cost });
  const { memory, passes, parallelism } = cost;
  return `m=${memory},t=${passes},p=${parallelism}$${salt.toString('base64url')}$${tag.toString('base64url')}`;
}

function read(stored: string): { cost: Omit<typeof COST, 'tagLength'>; salt: Buffer; tag: Buffer } {
  const match = /^m=(\d+),t=(\d+),p=(\d+)\$([\w-]+)\$([\w-]+)$/.exec(stored);
  if (match === null) throw new Error('a stored password has another form');
  const [, memory, passes, parallelism, salt = '', tag = ''] = match;
  return {
    cost: { memory: Number(memory), passes: Number(passes), parallelism: Number(parallelism) },
    salt: Buffer.from(salt, 'base64url'),
    tag: Buffer.from(tag, 'base64url'),
  };
}
