// Signs of life of machines and their workloads, and who uses the SSH servers of workloads. All of it is in memory only.
import type { Duplex } from 'node:stream';
import type { Clock } from '../../../shared/clock.ts';
import { SSH_LOGIN_MS_MAX } from '../../../shared/limits.ts';
import type { Session } from './session.ts';

export interface WorkloadLife {
  /** The link is up and the host has answered the last ping. */
  isAnswering: boolean;
  /** The time at which the link went up; null if it is down. */
  upSinceMs: number | null;
  /** The last time that the host answered a ping or sent bytes on a customer's stream; null if this process has seen neither. */
  lastMs: number | null;
  /** Open streams to the SSH server of the workload, authenticated or not. */
  sshStreams: number;
  /** Networks of clients with streams that are so new that they may not have logged in yet. */
  sshNetworks: number;
}

export interface Lives {
  of(machineId: string, workloadId: string): WorkloadLife;
  /** The host has sent bytes on a customer's stream. */
  noteBytes(workloadId: string): void;
  noteSsh(workloadId: string, stream: Duplex, network: string): void;
  /** Keeps the time of the last answer of a machine whose link has closed. */
  keep(machineId: string, lastMs: number): void;
}

/** Limit of remembered machines and workloads. A forgotten one is judged by its last good probe. */
const LIVES_MAX = 50_000;

export function openLives(sessions: ReadonlyMap<string, Pick<Session, 'life'>>, clock: Clock): Lives {
  const answeredMs = new Map<string, number>();
  const bytesMs = new Map<string, number>();
  const sshStreams = new Map<string, Map<Duplex, { network: string; sinceMs: number }>>();
  const note = (map: Map<string, number>, id: string, ms: number): void => {
    map.delete(id);
    map.set(id, ms);
    const oldest = map.size > LIVES_MAX ? map.keys().next().value : undefined;
    if (oldest !== undefined) map.delete(oldest);
  };
  return {
    of: (machineId, workloadId) => {
      const life = sessions.get(machineId)?.life();
      const known = [life?.lastMs ?? answeredMs.get(machineId), bytesMs.get(workloadId)].filter(
        (ms) => ms !== undefined,
      );
      const streams = [...(sshStreams.get(workloadId)?.values() ?? [])];
      const newMs = clock.monotonicMs() - SSH_LOGIN_MS_MAX;
      const recent = streams.filter(({ sinceMs }) => sinceMs > newMs);
      return {
        isAnswering: life?.isAnswering === true,
        upSinceMs: life?.upSinceMs ?? null,
        lastMs: known.length === 0 ? null : Math.max(...known),
        sshStreams: streams.length,
        sshNetworks: new Set(recent.map(({ network }) => network)).size,
      };
    },
    noteBytes: (workloadId) => note(bytesMs, workloadId, clock.now()),
    noteSsh: (workloadId, stream, network) => {
      const streams = sshStreams.get(workloadId) ?? new Map<Duplex, { network: string; sinceMs: number }>();
      sshStreams.set(workloadId, streams.set(stream, { network, sinceMs: clock.monotonicMs() }));
      stream.once('close', () => {
        streams.delete(stream);
        if (streams.size === 0) sshStreams.delete(workloadId);
      });
    },
    keep: (machineId, lastMs) => note(answeredMs, machineId, lastMs),
  };
}
