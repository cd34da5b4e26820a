// A tunnel under test, ours or OpenSSH's: its front port, and the processes that carry its bytes.
import { residentMb } from '../processes.ts';

export interface Chain {
  /** The port at which users connect, on 127.0.0.1. */
  port: number;
  /** The processes on the way; their children belong to them. */
  pids: readonly number[];
  close(): Promise<unknown>;
}

/** Resident memory of the processes on the way, in MB. */
export function memoryMb(chain: Chain): number {
  return chain.pids.reduce((sum, pid) => sum + residentMb(pid), 0);
}
