// Kits of earlier versions go once no container sees them, and not before.
import { mkdirSync, mkdtempSync, readdirSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, beforeEach, expect, test } from 'vitest';
import { removeOldKits } from '../../../agent/access/kit.ts';

let dir: string;
beforeEach(() => {
  dir = mkdtempSync(join(tmpdir(), 'kits-'));
  for (const name of ['current', 'seen', 'seen-not', 'broken.new'])
    mkdirSync(join(dir, 'kits', name, 'guest'), { recursive: true });
});
afterEach(() => rmSync(dir, { recursive: true }));

test('what no container sees is removed; the current one and those in use stay', async () => {
  const kit = { folder: join(dir, 'kits/current/guest'), holderProgram: '', node: [], entrypoint: [] };
  const removed = await removeOldKits(dir, kit, [join(dir, 'kits/seen/guest'), '/somewhere/else']);
  expect(removed.toSorted()).toEqual(['broken.new', 'seen-not']);
  expect(readdirSync(join(dir, 'kits')).toSorted()).toEqual(['current', 'seen']);
});
