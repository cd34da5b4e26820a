// A control plane that serves beside the primary on PostgreSQL: what it answers by itself, and what it passes on. The peer is the primary, asked
// directly for the same.
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { startControlPlane } from '../kit/control-plane.ts';
import { startPostgres } from '../kit/postgres.ts';
import { startSecond } from '../kit/second-control-plane.ts';
import { installMissing } from '../kit/setup.ts';
import { openAccount } from '../kit/stack.ts';
import { median, report, shuffled } from './measure.ts';
import { type Answer, type Side, startSide } from './side.ts';

const ROUNDS = 5;
const COUNT = 1_000;
/** The first few thousand requests of a process run code that is not compiled yet. */
const WARM_UP = 5_000;
const NO_LIMIT = 1_000_000;
const CLIENT = new URL('./api/client.ts', import.meta.url);
const SIDES = ['secondary', 'primary'] as const;
type SideName = (typeof SIDES)[number];

interface Work {
  what: string;
  path: string;
  status: number;
}

const WORKS: readonly Work[] = [
  { what: 'GET /v1/instances, which each one answers', path: '/v1/instances', status: 200 },
  // Only the primary knows that there is nothing.
  { what: 'a request that is passed on', path: '/v1/nothing', status: 404 },
];

export async function benchSecondary(): Promise<void> {
  const missing = installMissing(['initdb', 'openssl'], console.log);
  if (missing.length > 0) return console.log(`secondary: not measured, ${missing.join(', ')} is missing here`);
  const dir = mkdtempSync(join(tmpdir(), 'bench-2nd-'));
  const undo: (() => Promise<unknown>)[] = [async () => rmSync(dir, { recursive: true })];
  try {
    const postgres = await startPostgres();
    undo.push(() => postgres.stop());
    const first = await startControlPlane(join(dir, 'cp'), {
      postgresUrl: postgres.url,
      registries: [],
      authority: undefined,
      settings: { rate_limits: { per_key_per_second: NO_LIMIT, per_ip_per_second: NO_LIMIT, burst: NO_LIMIT } },
    });
    undo.push(() => first.daemon.stop());
    const { key } = await openAccount(first, 'customer', 'instances:read');
    const second = await startSecond(first, {});
    undo.push(() => second.program.stop('SIGTERM'));
    const client = await startSide(CLIENT);
    undo.push(() => client.stop());
    const origins = { secondary: second.url, primary: first.agentUrl };
    for (const work of WORKS)
      for (const connections of [1, 16]) await compare(work, { client, origins, key, connections });
  } finally {
    while (undo.length > 0) await undo.pop()?.();
  }
}

interface Load {
  client: Side;
  origins: Record<SideName, string>;
  key: string;
  connections: number;
}

async function compare({ what, path, status }: Work, { client, origins, key, connections }: Load): Promise<void> {
  const load = (side: SideName, count: number): Promise<Answer> =>
    client.ask({ kind: 'GET', origin: origins[side], path, key, body: '', headers: '', connections, count, status });
  const answers: Record<SideName, Answer[]> = { secondary: [], primary: [] };
  for (const side of SIDES) await load(side, WARM_UP);
  for (let round = 0; round < ROUNDS; round += 1)
    for (const side of shuffled(SIDES)) answers[side].push(await load(side, COUNT));
  for (const [name, unit] of [
    ['perSecond', '/s'],
    ['p50Ms', 'ms'],
  ] as const) {
    const of = (side: SideName): number => median(answers[side].map((answer) => answer[name] ?? Number.NaN));
    const title = name === 'perSecond' ? `${what}, ${connections} connections` : '  p50';
    report({ what: title, ours: of('secondary'), peer: of('primary'), peerName: 'the primary', unit });
  }
}
