// A database without its secret is detected at the start, before a sealed value is needed.
import { expect, test } from 'vitest';
import { assertSecretFits, openSealing } from '../../../../control-plane/base/http/sealing.ts';
import { SCHEMA } from '../../../../control-plane/foundation.ts';
import { systemClock } from '../../../../shared/clock.ts';
import { createIds } from '../../../../shared/ids.ts';
import { systemRng } from '../../../../shared/rng.ts';
import { openTestDb } from '../../../kit/databases.ts';

test('the first secret is stored; another one is refused with an instruction', async () => {
  const sealingOf = (byte: number) => openSealing(new Uint8Array(32).fill(byte), createIds(systemClock(), systemRng()));
  const db = await openTestDb(SCHEMA);
  await assertSecretFits(db, sealingOf(1));
  await assertSecretFits(db, sealingOf(1));
  await expect(assertSecretFits(db, sealingOf(2))).rejects.toThrow(/put that file back/);
  await db.close();
});
