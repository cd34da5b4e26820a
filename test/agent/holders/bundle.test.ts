// The kit is whole after every start, and kits of earlier versions go once no container sees them.
import { hash } from 'node:crypto';
import * as fs from 'node:fs';
import { tmpdir } from 'node:os';
import { basename, dirname, join } from 'node:path';
import { afterEach, beforeEach, expect, test } from 'vitest';
import { prepareKit, removeOldKits } from '../../../agent/holders/bundle.ts';
import { startProgram } from '../../kit/processes.ts';

let dir: string;
beforeEach(() => {
  dir = fs.mkdtempSync(join(tmpdir(), 'kits-'));
  for (const name of ['current', 'seen', 'seen-not', 'broken.new'])
    fs.mkdirSync(join(dir, 'kits', name, 'guest'), { recursive: true });
});
afterEach(() => fs.rmSync(dir, { recursive: true }));

test('what no container sees is removed; the current one and those in use stay', async () => {
  const kit = { folder: join(dir, 'kits/current/guest'), holderProgram: '', node: [], entrypoint: [] };
  const removed = await removeOldKits(dir, kit, [join(dir, 'kits/seen/guest'), '/somewhere/else']);
  expect(removed.toSorted()).toEqual(['broken.new', 'seen-not']);
  expect(fs.readdirSync(join(dir, 'kits')).toSorted()).toEqual(['current', 'seen']);
});

test('what a power cut has torn is whole after the next start, and what is whole is left as it is', async () => {
  const kit = await prepareKit(dir);
  const whole = dirname(kit.folder);
  const before = contents(whole);
  const node = join(kit.folder, 'node');
  const { size, atime, mtime } = fs.statSync(node);
  const zeros = fs.openSync(node, 'r+');
  fs.writeSync(zeros, Buffer.alloc(4096), 0, 4096, size - 8192);
  fs.closeSync(zeros);
  fs.utimesSync(node, atime, mtime);
  fs.truncateSync(join(kit.folder, 'guest.cjs'), 1000);
  fs.truncateSync(kit.holderProgram, 0);
  fs.rmSync(join(whole, 'page/page.js'));
  fs.chmodSync(join(kit.folder, 'pty.node'), 0o600);
  const loader = join(kit.folder, basename(kit.node[0] ?? ''));
  const { ino } = fs.statSync(loader);
  expect(await prepareKit(dir)).toEqual(kit);
  expect(contents(whole)).toEqual(before);
  expect(fs.statSync(loader).ino).toBe(ino);
  expect(fs.statSync(node).ino).not.toBe(ino);
});

test('what a holder has compiled is there for the next one while the first one serves, and only its owner can write it', async () => {
  const { holderProgram } = await prepareKit(dir);
  const workload = join(dir, 'workload');
  fs.mkdirSync(join(workload, 'door'), { recursive: true });
  // The tests' own cache would take its place.
  const holder = startProgram({
    command: process.execPath,
    args: [holderProgram, workload],
    env: { NODE_COMPILE_CACHE: '' },
  });
  await holder.waitForOutput(/the holder serves/);
  const files = fs
    .readdirSync(join(dirname(holderProgram), 'compiled'), { recursive: true, withFileTypes: true })
    .filter((entry) => entry.isFile());
  await holder.stop('SIGKILL');
  expect(files).not.toEqual([]);
  const owners = files.map(({ parentPath, name }) => fs.statSync(join(parentPath, name)).uid);
  expect(new Set(owners)).toEqual(new Set([process.getuid?.()]));
});

/** Mode and hash of every file below. */
function contents(folder: string): Record<string, string> {
  const files = fs.readdirSync(folder, { recursive: true, withFileTypes: true }).filter((entry) => entry.isFile());
  return Object.fromEntries(
    files.map(({ parentPath, name }) => {
      const path = join(parentPath, name);
      return [path, `${(fs.statSync(path).mode & 0o777).toString(8)} ${hash('sha256', fs.readFileSync(path))}`];
    }),
  );
}
