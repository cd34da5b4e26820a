// The facts of a fleet, whatever the control plane believes: which holders worked, when somebody was away, what was asked.
import type { VirtualClock } from '../kit/virtual-clock.ts';
import type { SimHost } from './host.ts';
import { openTrack, type Span, type Track } from './spans.ts';

export interface LaunchedInstance {
  atMs: number;
  gpuCount: number;
  /** The runtime limit; Infinity without one. */
  limitMs: number;
  /** The price of the whole instance, if it was placed at once. */
  placedUcentsPerHour: bigint | undefined;
}

export interface Witness {
  /** The caller says that something may have changed. */
  watch(): void;
  /** The spans in which path, agent and holder of a workload all work: somebody who comes to its host may get in. */
  holders(workloadId: string): Span[];
  /** Nothing of the host's connections lags or is lost: customers do get in. */
  goodEndpoints(workloadId: string): Span[];
  containers(workloadId: string): Span[];
  /** The spans in which another host with the same identity ran too. */
  copies(machineId: string): Span[];
  planeUp(): Span[];
  /** The time up to which the control plane was there. The database holds what happened until then. */
  upUntilMs(): number;
  /** The spans whose writes are lost: from a death to the return, or from a backup to the return. */
  absences(): readonly Span[];
  noteOwnOutage(span: Span): void;
  /** A backup of this time is restored: nobody knows any more what customers and suppliers were told since then. */
  forgetSince(ms: number): void;
  /** Notes what one GPU of the machine costs from now on. */
  notePrice(machineId: string, ucentsPerHour: bigint): void;
  launches: Map<string, LaunchedInstance>;
  /** The time at which the end of each instance was accepted. */
  ends: Map<string, number>;
  /** What one GPU of each machine cost, and since when. */
  prices: Map<string, { sinceMs: number; ucentsPerHour: bigint }[]>;
}

/** The witness calls `isPlaneUp` and `hosts` at each change. */
export function openWitness(clock: VirtualClock, hosts: readonly SimHost[], isPlaneUp: () => boolean): Witness {
  const holders = new Map<string, Track>();
  const goodEndpoints = new Map<string, Track>();
  const containers = new Map<string, Track>();
  const copies = new Map<string, Track>();
  const plane = openTrack(clock.now);
  const absences: Span[] = [];
  const trackOf = (tracks: Map<string, Track>, id: string): Track => {
    const track = tracks.get(id) ?? openTrack(clock.now);
    tracks.set(id, track);
    return track;
  };
  const witness: Witness = {
    watch: () => {
      plane.note(isPlaneUp());
      for (const host of hosts) {
        trackOf(copies, host.machineId).note(host.isCopied());
        for (const id of [...host.engine.containers.keys(), ...host.holders.ids()]) {
          for (const tracks of [holders, goodEndpoints, containers]) trackOf(tracks, id);
        }
      }
      for (const [id, track] of holders) track.note(hosts.some((host) => host.answersFor(id)));
      for (const [id, track] of goodEndpoints) {
        track.note(hosts.some((host) => host.answersFor(id) && host.path.isCalm() && !host.isCopied()));
      }
      for (const [id, track] of containers) {
        track.note(hosts.some(({ engine }) => engine.containers.get(id)?.running === true));
      }
    },
    holders: (id) => holders.get(id)?.spans() ?? [],
    goodEndpoints: (id) => goodEndpoints.get(id)?.spans() ?? [],
    containers: (id) => containers.get(id)?.spans() ?? [],
    copies: (id) => copies.get(id)?.spans() ?? [],
    planeUp: plane.spans,
    upUntilMs: () => plane.spans().at(-1)?.[1] ?? clock.now(),
    absences: () => absences,
    noteOwnOutage: (span) => void absences.push(span),
    forgetSince: (ms) => {
      for (const [id, atMs] of witness.ends) if (atMs > ms) witness.ends.delete(id);
      for (const [machineId, past] of witness.prices) {
        const price = past.findLast(({ sinceMs }) => sinceMs <= ms);
        if (price !== undefined) witness.notePrice(machineId, price.ucentsPerHour);
      }
    },
    notePrice: (machineId, ucentsPerHour) => {
      const past = witness.prices.get(machineId) ?? [];
      witness.prices.set(machineId, [...past, { sinceMs: clock.now(), ucentsPerHour }]);
    },
    launches: new Map(),
    ends: new Map(),
    prices: new Map(),
  };
  return witness;
}
