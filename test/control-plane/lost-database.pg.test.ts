// A PostgreSQL server that is away: the log says so once, once that it is back, and at last why the control plane ends.
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, beforeEach, expect, onTestFailed, test } from 'vitest';
import { readConfig } from '../../control-plane/config.ts';
import { openHouse } from '../../control-plane/house.ts';
import { createLog } from '../../shared/log.ts';
import { startPostgres } from '../kit/postgres.ts';

let dir: string;
beforeEach(() => {
  dir = mkdtempSync(join(tmpdir(), 'lost-'));
});
afterEach(() => rmSync(dir, { recursive: true }));

const BACK = 'the database can be reached again';

test('is one error, one line when it is back, and the reason in the last line', async () => {
  const lines: Record<string, unknown>[] = [];
  const log = createLog('test', 'info', {
    write: (line) => void lines.push(JSON.parse(line) as Record<string, unknown>),
  });
  const errors = (): unknown[] => lines.filter(({ level }) => Number(level) >= 50).map(({ msg }) => msg);
  const server = await startPostgres();
  onTestFailed(() => server.stop());
  const settings = {
    base_url: 'http://127.0.0.1/v1',
    listen: { host: '127.0.0.1', port: 0 },
    database: { postgres: server.url },
    admin_socket: join(dir, 'admin.sock'),
    secret_file: join(dir, 'secret'),
  };
  writeFileSync(join(dir, 'config.yaml'), JSON.stringify(settings));
  const house = await openHouse(readConfig(join(dir, 'config.yaml')), log);
  await house.start();
  const lost = new Promise<void>((resolve) => house.onLost(resolve));

  await server.crash();
  await expect.poll(() => lines.some(({ msg }) => msg === BACK), { timeout: 30_000 }).toBe(true);
  expect(errors()).toEqual([expect.stringMatching(/^the database cannot be reached: /)]);

  lines.length = 0;
  await server.stop();
  await lost;
  expect(errors()).toEqual([
    expect.stringMatching(/^the database cannot be reached: /),
    'this control plane may not write any more, and ends',
  ]);
  expect(lines.find(({ level }) => level === 60)?.['why']).toMatch(
    /^the lease was not renewed for 10 s, because the database could not be reached: connect ECONNREFUSED [0-9.:]+$/,
  );
  await house.close();
});
