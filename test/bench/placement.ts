// The whole placement choice, SQL included, on 10,000 and on 100,000 machines.
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { type Db, sql } from '../../control-plane/base/db/db.ts';
import { migrate } from '../../control-plane/base/db/migrate.ts';
import { openSqlite } from '../../control-plane/base/db/sqlite.ts';
import { candidates } from '../../control-plane/fleet/supply/offerings.ts';
import { rank } from '../../control-plane/fleet/placement/placement.ts';
import { SCHEMA } from '../../control-plane/foundation.ts';
import { systemClock } from '../../shared/clock.ts';
import { seededRng } from '../../shared/rng.ts';
import { median, report, timeMs } from './measure.ts';
import { ANYWHERE } from '../kit/machines.ts';

const SMALL = 10_000;
const LARGE = 100_000;
const ROUNDS = 7;
const CHOICES = 1_000;
/** Launches that arrive together share a commit. */
const AT_ONCE = 64;
const PER_SECOND_MIN = 2_000;
const TYPES = ['H100_SXM', 'A100_SXM_80GB', 'RTX_4090', 'L40S', 'H200'];
const PIECE = 2_000;

export async function benchPlacement(): Promise<void> {
  const small = await openFleet(SMALL);
  const large = await openFleet(LARGE);
  const smallMs: number[] = [];
  const largeMs: number[] = [];
  // The sides take turns, so that other load on the machine affects both.
  for (let round = 0; round < ROUNDS; round += 1) {
    smallMs.push(await small.choiceMs());
    largeMs.push(await large.choiceMs());
  }
  report({
    what: `placement choices, ${SMALL.toLocaleString('en')} machines`,
    ours: 1000 / median(smallMs),
    peer: PER_SECOND_MIN,
    peerName: 'the required',
    unit: '/s',
    target: { rule: 'at least', ratio: 1 },
  });
  report({
    what: `placement choice, ${LARGE.toLocaleString('en')} machines`,
    ours: median(largeMs),
    peer: median(smallMs),
    peerName: `${SMALL.toLocaleString('en')} machines`,
    unit: 'ms',
    target: { rule: 'at most', ratio: 1.5 },
  });
  await small.close();
  await large.close();
}

interface Fleet {
  /** Mean time of one choice over a round. */
  choiceMs(): Promise<number>;
  close(): Promise<void>;
}

async function openFleet(machines: number): Promise<Fleet> {
  const dir = mkdtempSync(join(tmpdir(), 'bench-placement-'));
  const clock = systemClock();
  const db = openSqlite(join(dir, 'fleet.db'), { clock });
  await migrate(db, SCHEMA, { clock });
  await fill(db, machines);
  const rng = seededRng(3);
  const choose = async (): Promise<void> => {
    const gpuType = TYPES[Math.floor(rng.float() * TYPES.length)] ?? '';
    const gpuCount = 1 + Math.floor(rng.float() * 8);
    const request = {
      gpuType,
      gpuCount,
      ...ANYWHERE,
    };
    const chosen = rank(request, await db.tx('choose', (tx) => candidates(tx, request)))[0];
    if (chosen === undefined) throw new Error(`nothing fits ${gpuCount} x ${gpuType}`);
  };
  const round = async (): Promise<void> => {
    for (let left = CHOICES; left > 0; left -= AT_ONCE) {
      await Promise.all(Array.from({ length: Math.min(AT_ONCE, left) }, choose));
    }
  };
  await round();
  return {
    choiceMs: async () => (await timeMs(round)) / CHOICES,
    close: async () => {
      await db.close();
      rmSync(dir, { recursive: true });
    },
  };
}

async function fill(db: Db, machines: number): Promise<void> {
  const rng = seededRng(1);
  await db.tx('supplier', (tx) =>
    tx.run(sql`insert into suppliers (id, org_id, status, created_ms, updated_ms) values ('s', 'o', 'active', 0, 0)`),
  );
  for (let from = 0; from < machines; from += PIECE) {
    await db.tx('fill', async (tx) => {
      for (let i = from; i < from + PIECE; i += 1) {
        const type = TYPES[i % TYPES.length] ?? '';
        const free = Math.floor(rng.float() * 9);
        const price = BigInt(Math.round((0.2 + rng.float() * 4) * 1e8));
        await tx.run(sql`insert into machines (id, supplier_id, status, verification_status, region, price_ucents_per_hour, tier, online, created_ms, updated_ms)
          values (${`m${i}`}, 's', 'listed', 'verified', 'eu', ${price}, 'on_demand', 1, ${i}, ${i})`);
        await tx.run(sql`insert into offerings (id, machine_id, gpu_type, region, tier, price_ucents_per_hour, vram_gb, cpu_cores, ram_gb, storage_gb,
            disk_configurable, disk_free_gb, disk_price_ucents_per_gb_hour, gpu_total, gpu_free, listed, created_ms)
          values (${`off${i}`}, ${`m${i}`}, ${type}, 'eu', 'on_demand', ${price}, 80, 64, 512, 4000, 0, 4000, 0, 8, ${free}, 1, ${i})`);
      }
    });
  }
}
