// Idle links of agents: the memory that each costs the control plane, against idle connections of a bare `ws` server, and how fast all of them
// are back after a restart. The control plane, the peer and the agents are processes of their own.
import { generateKeyPairSync } from 'node:crypto';
import { mkdtempSync, readFileSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join, resolve } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { fileURLToPath } from 'node:url';
import Database from 'better-sqlite3';
import { LINK_PATH } from '../../shared/protocol/link.ts';
import { type Authority, makeAuthority } from '../kit/certificate.ts';
import { API_NAMES, type ControlPlane, startControlPlane } from '../kit/control-plane.ts';
import { eventually } from '../kit/processes.ts';
import { installMissing } from '../kit/setup.ts';
import type { MemoryLine } from './links/memory.ts';
import { report } from './measure.ts';
import { startSide } from './side.ts';

const LINKS = 2_000;
/** These warm up both programs first: code is compiled, caches and buffers have their size. */
const WARM_UP = 500;
/** Each link has been pinged by then, and its first token is confirmed. */
const IDLE_MS = 15_000;
const KIB = 1_024;
const LINK_KIB_MAX = 25;
/** OpenSSL and Node keep about 50 KiB for a connection over TLS, so there the target is a part of that. */
const OF_BARE_TLS_MAX = 1.4;
/** 10,000 in 15 s, without the handshakes of TLS, which cost both ends several times as much. */
const RELINK_MS_MAX = 1.5;
const AGENTS = new URL('./links/agents.ts', import.meta.url);
const PEER = new URL('./links/peer.ts', import.meta.url);
const MEMORY = fileURLToPath(new URL('./links/memory.ts', import.meta.url));
const LAUNCHER = resolve(import.meta.dirname, '../../control-plane/svc-control-plane.js');

type Memory = MemoryLine['bench_memory'];

export async function benchLinks(): Promise<void> {
  const missing = installMissing(['openssl'], console.log);
  if (missing.length > 0) return console.log(`links: not measured, ${missing.join(', ')} is missing here`);
  await measure('plain', undefined);
  await measure('TLS', makeAuthority());
}

async function measure(name: string, authority: Authority | undefined): Promise<void> {
  const dir = mkdtempSync(join(tmpdir(), 'bench-links-'));
  const undo: (() => Promise<unknown>)[] = [];
  try {
    const peer = await startSide(PEER, { flags: ['--expose-gc'] });
    undo.push(() => peer.stop());
    const controlPlane = await startControlPlane(join(dir, 'cp'), {
      postgresUrl: undefined,
      registries: [],
      authority,
      // Each agent has an address of its own in a header, as behind a proxy.
      settings: { trust_proxy: ['127.0.0.1'] },
      program: [process.execPath, '--expose-gc', '--import', MEMORY, LAUNCHER],
    });
    undo.push(() => controlPlane.daemon.stop());
    const agents = await startSide(AGENTS);
    undo.push(() => agents.stop());
    const ca = authority === undefined ? {} : { ca: authority.cert };
    const { port = 0 } = await peer.ask({ kind: 'serve', ...authority?.issue(API_NAMES) });
    const idle = { kind: 'idle', url: `${authority === undefined ? 'ws' : 'wss'}://127.0.0.1:${port}`, ...ca };
    const bare = await costOf(
      (count) => agents.ask({ ...idle, count }),
      async () => (await peer.ask({ kind: 'memory' })) as unknown as Memory,
    );
    const fleet = {
      url: `${controlPlane.agentUrl.replace('http', 'ws')}${LINK_PATH}`,
      key: enrol(controlPlane),
      ...ca,
    };
    const own = await costOf(
      (count, first) => agents.ask({ kind: 'link', ...fleet, first, count }),
      () => memoryOf(controlPlane),
    );
    reportMemory(name, own, bare);
    const back = agents.ask({ kind: 'return', ...fleet });
    await controlPlane.daemon.stop();
    await controlPlane.daemon.start();
    reportReturn(name, (await back)['ms'] ?? Number.NaN);
  } finally {
    while (undo.length > 0) await undo.pop()?.();
    rmSync(dir, { recursive: true });
  }
}

/** KiB for each of the connections that `open` opens. */
async function costOf(
  open: (count: number, first: number) => Promise<unknown>,
  memory: () => Promise<Memory>,
): Promise<Memory> {
  await open(WARM_UP, 0);
  await sleep(IDLE_MS);
  const before = await memory();
  await open(LINKS, WARM_UP);
  await sleep(IDLE_MS);
  const after = await memory();
  const each = (name: keyof Memory): number => (after[name] - before[name]) / LINKS / KIB;
  return { rss: each('rss'), heap: each('heap'), outside: each('outside') };
}

async function memoryOf({ daemon }: ControlPlane): Promise<Memory> {
  const linesBefore = memoryLines(daemon.logPath).length;
  process.kill(daemon.pid(), 'SIGUSR2');
  return eventually('the memory of the control plane', 10_000, async () => memoryLines(daemon.logPath)[linesBefore]);
}

function memoryLines(logPath: string): Memory[] {
  const lines = readFileSync(logPath, 'utf8').split('\n');
  return lines
    .filter((line) => line.startsWith('{"bench_memory"'))
    .map((line) => (JSON.parse(line) as MemoryLine).bench_memory);
}

function reportMemory(name: string, own: Memory, bare: Memory): void {
  const of = { peerName: 'a bare ws connection', unit: 'KiB' };
  const target = { rule: 'at most', ratio: name === 'TLS' ? OF_BARE_TLS_MAX : LINK_KIB_MAX / bare.rss } as const;
  report({ what: `resident memory of an idle link, ${name}`, ours: own.rss, peer: bare.rss, ...of, target });
  report({ what: '  of it heap', ours: own.heap, peer: bare.heap, ...of });
  report({ what: '  of it buffers', ours: own.outside, peer: bare.outside, ...of });
}

function reportReturn(name: string, ms: number): void {
  report({
    what: `a link after a restart, ${LINKS + WARM_UP} of them, ${name}`,
    ours: ms / (LINKS + WARM_UP),
    peer: RELINK_MS_MAX,
    peerName: name === 'TLS' ? 'the required without TLS' : 'the required',
    unit: 'ms',
    ...(name === 'TLS' ? {} : { target: { rule: 'at most', ratio: 1 } }),
  });
}

/** Enrols machines that have never linked, and returns the key that they share. No two machines of a service have the same one. */
function enrol({ databaseFile }: ControlPlane): string {
  const { publicKey, privateKey } = generateKeyPairSync('ed25519');
  const database = new Database(databaseFile);
  database.exec(`begin immediate;
    drop index machines_by_key;
    insert into suppliers (id, org_id, status, created_ms, updated_ms, machine_count) values ('s', 'o', 'active', 0, 0, ${LINKS + WARM_UP});
    with recursive n(i) as (select 0 union all select i + 1 from n where i + 1 < ${LINKS + WARM_UP})
      insert into machines (id, supplier_id, status, verification_status, region, price_ucents_per_hour, tier, public_key, created_ms, updated_ms)
      select 'm' || i, 's', 'pending_verification', 'unverified', 'eu', 100000000, 'on_demand', '${publicKey.export({ format: 'jwk' }).x}', i, i from n;
    commit;`);
  database.close();
  return privateKey.export({ format: 'pem', type: 'pkcs8' }).toString();
}
