// A tunnel under test, ours or OpenSSH's: its front port, and the processes that carry its bytes.
import { readFileSync } from 'node:fs';

export interface Chain {
  /** Where users connect, on 127.0.0.1. */
  port: number;
  /** The processes on the way; their children belong to them. */
  pids: readonly number[];
  close(): Promise<unknown>;
}

/** Resident memory of the processes on the way, in MB. */
export function memoryMb(chain: Chain): number {
  return chain.pids.reduce((sum, pid) => sum + residentMb(pid), 0);
}

function residentMb(pid: number): number {
  const kib = Number(/^VmRSS:\s+(\d+)/m.exec(readFileSync(`/proc/${pid}/status`, 'utf8'))?.[1]);
  const children = readFileSync(`/proc/${pid}/task/${pid}/children`, 'utf8').split(' ').filter(Boolean);
  return (kib * 1024) / 1e6 + children.reduce((sum, child) => sum + residentMb(Number(child)), 0);
}
