// Upload and download of a file of 1 GiB against nginx on the same disk. curl sends and receives for both. The service hashes what it stores,
// checks each line of a training file, and answers when the file is on the disk; nginx does none of this.
import { createWriteStream, mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { Readable } from 'node:stream';
import { pipeline } from 'node:stream/promises';
import { z } from 'zod';
import { capture } from '../kit/capture.ts';
import { type ControlPlane, startControlPlane } from '../kit/control-plane.ts';
import { installMissing } from '../kit/setup.ts';
import { openAccount } from '../kit/stack.ts';
import { median, report, shuffled, timeMs } from './measure.ts';
import { type Nginx, startFileServer } from './nginx.ts';
import { residentMb } from './processes.ts';

const MIB = 1024 ** 2;
const FILE_MIB = 1_024;
const ROUNDS = 3;
const RATIO_MIN = 0.5;
/** A process that held a quarter of the file would need more beside its own size. */
const GROWN_MB_MAX = 256;
const SECONDS_MAX = 240;

type Way = 'service' | 'nginx';
type Task = 'upload' | 'download';
/** `checked`: each line is an example. Otherwise the check gives up after its first 10,000 lines. */
type Kind = 'plain' | 'checked';

interface Stage {
  dir: string;
  controlPlane: ControlPlane;
  nginx: Nginx;
  key: string;
}

export async function benchFiles(): Promise<void> {
  const missing = installMissing(['nginx', 'curl'], console.log);
  if (missing.length > 0) return console.log(`files: not measured, ${missing.join(', ')} is missing here`);
  const dir = mkdtempSync(join(tmpdir(), 'bench-f-'));
  const undo: (() => Promise<unknown>)[] = [];
  try {
    const stage = await openStage(dir, undo);
    for (const kind of ['plain', 'checked'] as const) {
      await writeSource(sourceOf(stage, kind), kind);
      await compare(stage, kind);
    }
  } finally {
    while (undo.length > 0) await undo.pop()?.();
    rmSync(dir, { recursive: true });
  }
}

async function openStage(dir: string, undo: (() => Promise<unknown>)[]): Promise<Stage> {
  const settings = { files: { file_mib_max: FILE_MIB, mib_per_org: 8 * FILE_MIB }, log_level: 'warn' };
  const around = { postgresUrl: undefined, registries: [], authority: undefined, settings };
  const controlPlane = await startControlPlane(join(dir, 'cp'), around);
  undo.push(() => controlPlane.daemon.stop());
  const { key } = await openAccount(controlPlane, 'customer', 'files:read,files:write');
  const nginx = await startFileServer(join(dir, 'nginx'));
  undo.push(nginx.stop);
  return { dir, controlPlane, nginx, key };
}

async function compare(stage: Stage, kind: Kind): Promise<void> {
  const pid = stage.controlPlane.daemon.pid();
  const restMb = residentMb(pid);
  let peakMb = restMb;
  const watch = setInterval(() => (peakMb = Math.max(peakMb, residentMb(pid))), 50);
  const times: Record<Task, Record<Way, number[]>> = {
    upload: { service: [], nginx: [] },
    download: { service: [], nginx: [] },
  };
  for (let round = 0; round < ROUNDS; round += 1)
    for (const way of shuffled(['service', 'nginx'] as const)) {
      const ms = way === 'service' ? await throughService(stage, kind) : await throughNginx(stage, kind);
      for (const task of ['upload', 'download'] as const) times[task][way].push(ms[task]);
    }
  clearInterval(watch);
  for (const task of ['upload', 'download'] as const) {
    const perSecond = (way: Way): number => (FILE_MIB * 1_000) / median(times[task][way]);
    const what = `${task} of ${FILE_MIB} MiB, ${kind === 'checked' ? 'each line checked' : 'bytes alone'}`;
    const compared = { what, ours: perSecond('service'), peer: perSecond('nginx'), peerName: 'nginx', unit: 'MiB/s' };
    report(kind === 'checked' ? compared : { ...compared, target: { rule: 'at least', ratio: RATIO_MIN } });
  }
  const grown = { ours: peakMb - restMb, peer: GROWN_MB_MAX, peerName: 'the allowed', unit: 'MB' };
  report({ what: 'memory that this takes at its peak', ...grown, target: { rule: 'at most', ratio: 1 } });
  console.log(`  peak RSS ${peakMb.toFixed(0)} MB, ${restMb.toFixed(0)} MB before`);
}

async function throughService(stage: Stage, kind: Kind): Promise<Record<Task, number>> {
  const { controlPlane, key } = stage;
  const auth = ['-H', `Authorization: Bearer ${key}`];
  const url = `${controlPlane.baseUrl}/files`;
  let answer = '';
  const upload = await timeMs(async () => {
    answer = await curl(...auth, '-F', 'purpose=fine-tune', '-F', `file=@${sourceOf(stage, kind)}`, url);
  });
  const { id } = z.object({ id: z.string() }).parse(JSON.parse(answer));
  const download = await timeMs(() => curl(...auth, '-o', '/dev/null', `${url}/${id}/content`));
  await curl(...auth, '-X', 'DELETE', `${url}/${id}`);
  return { upload, download };
}

async function throughNginx(stage: Stage, kind: Kind): Promise<Record<Task, number>> {
  const url = `${stage.nginx.origin}/file`;
  const upload = await timeMs(() => curl('-T', sourceOf(stage, kind), url));
  const download = await timeMs(() => curl('-o', '/dev/null', url));
  rmSync(join(stage.dir, 'nginx', 'root', 'file'));
  return { upload, download };
}

async function curl(...args: string[]): Promise<string> {
  const limited = ['curl', '-sS', '--fail', '-m', String(SECONDS_MAX)];
  const { code, stdout, stderr } = await capture([...limited, ...args], { timeoutMs: SECONDS_MAX * 1_000 });
  if (code !== 0) throw new Error(`curl ended with ${code}: ${stderr}`);
  return stdout.toString();
}

function sourceOf({ dir }: Pick<Stage, 'dir'>, kind: Kind): string {
  return join(dir, `${kind}.jsonl`);
}

async function writeSource(path: string, kind: Kind): Promise<void> {
  const text = 'What is the answer to this question? '.repeat(20);
  const line =
    kind === 'plain'
      ? `${text}\n`
      : `${JSON.stringify({
          messages: [
            { role: 'user', content: text },
            { role: 'assistant', content: text },
          ],
        })}\n`;
  const piece = Buffer.from(line.repeat(Math.floor(MIB / line.length)));
  const pieces = function* (): Generator<Buffer> {
    for (let i = 0; i < FILE_MIB; i += 1) yield piece;
  };
  await pipeline(Readable.from(pieces()), createWriteStream(path));
}
