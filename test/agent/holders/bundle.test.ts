// The bundle is complete after every start, and bundles of earlier versions are removed once no container uses them.
import { hash } from 'node:crypto';
import * as fs from 'node:fs';
import { tmpdir } from 'node:os';
import { basename, dirname, join } from 'node:path';
import { afterEach, beforeEach, expect, test } from 'vitest';
import { prepareBundle, removeOldBundles } from '../../../agent/holders/bundle.ts';
import { startProgram } from '../../kit/processes.ts';

let dir: string;
beforeEach(() => {
  dir = fs.mkdtempSync(join(tmpdir(), 'bundles-'));
  for (const name of ['current', 'seen', 'seen-not', 'broken.new'])
    fs.mkdirSync(join(dir, 'bundles', name, 'guest'), { recursive: true });
});
afterEach(() => fs.rmSync(dir, { recursive: true }));

test('bundles that no container uses are removed; the current one and those in use stay', async () => {
  const bundle = { folder: join(dir, 'bundles/current/guest'), holderProgram: '', node: [], entrypoint: [] };
  const removed = await removeOldBundles(dir, bundle, [join(dir, 'bundles/seen/guest'), '/somewhere/else']);
  expect(removed.toSorted()).toEqual(['broken.new', 'seen-not']);
  expect(fs.readdirSync(join(dir, 'bundles')).toSorted()).toEqual(['current', 'seen']);
});

test('files that a power cut has damaged are complete after the next start, and the others are not written again', async () => {
  const bundle = await prepareBundle(dir);
  const whole = dirname(bundle.folder);
  const before = contents(whole);
  const node = join(bundle.folder, 'node');
  const { size, atime, mtime } = fs.statSync(node);
  const zeros = fs.openSync(node, 'r+');
  fs.writeSync(zeros, Buffer.alloc(4096), 0, 4096, size - 8192);
  fs.closeSync(zeros);
  fs.utimesSync(node, atime, mtime);
  fs.truncateSync(join(bundle.folder, 'guest.cjs'), 1000);
  fs.truncateSync(bundle.holderProgram, 0);
  fs.rmSync(join(whole, 'page/page.js'));
  fs.chmodSync(join(bundle.folder, 'pty.node'), 0o600);
  const loader = join(bundle.folder, basename(bundle.node[0] ?? ''));
  const { ino } = fs.statSync(loader);
  expect(await prepareBundle(dir)).toEqual(bundle);
  expect(contents(whole)).toEqual(before);
  expect(fs.statSync(loader).ino).toBe(ino);
  expect(fs.statSync(node).ino).not.toBe(ino);
});

test('an agent whose programs were not built says how to build them', async () => {
  await expect(prepareBundle(dir, join(dir, 'nothing'))).rejects.toThrow('run npm run build');
});

test('the compile cache of a holder is ready for the next one while the first one serves, and only its owner can write it', async () => {
  const { holderProgram } = await prepareBundle(dir);
  const workload = join(dir, 'workload');
  fs.mkdirSync(join(workload, 'run'), { recursive: true });
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
