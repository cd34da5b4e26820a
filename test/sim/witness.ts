// What the world itself knows of a fleet, whatever the control plane believes: which holders worked, when somebody was away, what was asked.
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
  /** Something may have changed. */
  watch(): void;
  /** The spans in which path, agent and holder of a workload all work: somebody who comes to its host may get in. */
  holders(workloadId: string): Span[];
  /** Nothing of the host's connections lags or is lost: customers do get in. */
  goodEndpoints(workloadId: string): Span[];
  containers(workloadId: string): Span[];
  /** A host of its identity ran beside it. */
  copies(machineId: string): Span[];
  planeUp(): Span[];
  /** The time until which the control plane was there: what the database holds is from then. */
  upUntilMs(): number;
  /** The control plane was gone for so long, and what it did in it is lost: its death and its return, or the backup and the return. */
  absences(): readonly Span[];
  noteOwnOutage(span: Span): void;
  /** A backup of then is back: what was said to customers and by suppliers since then is not known any more. */
  forgetSince(ms: number): void;
  /** What one GPU of it costs from now on. */
  notePrice(machineId: string, ucentsPerHour: bigint): void;
  launches: Map<string, LaunchedInstance>;
  /** Customers' ends that were accepted: by instance, when. */
  ends: Map<string, number>;
  /** What one GPU of each machine cost, and since when. */
  prices: Map<string, { sinceMs: number; ucentsPerHour: bigint }[]>;
}

/** `isPlaneUp` and `hosts` are asked at each change. */
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
