// Samples the figures of GPUs, containers and the host: every ten seconds, and every second while somebody looks at them.
import type { Clock } from '../../shared/clock.ts';
import { messageOf } from '../../shared/errors.ts';
import { GPUS_PER_MACHINE_MAX, METRICS_PERIOD_MS, METRICS_WATCHED_PERIOD_MS } from '../../shared/limits.ts';
import type { Log } from '../../shared/log.ts';
import { startLoop, type LoopStatus } from '../../shared/loop.ts';
import type { ContainerFigures, ContainerSample, HostFigures, MetricsSample } from '../../shared/protocol/metrics.ts';
import type { ReadFigures } from '../gpus/figures.ts';

/** A container that runs, and the GPUs that it has. */
export interface MeasuredContainer {
  container_id: string;
  workload_id: string;
  gpu_uuids: readonly string[];
}

export interface Sampler {
  /** Somebody looks at the figures: samples quickly for this time. */
  watch(forMs: number): void;
  loops(): LoopStatus[];
  stop(): Promise<void>;
}

export interface SamplerDeps {
  readFigures: ReadFigures;
  containers(): readonly MeasuredContainer[];
  /** Sends a sample; without a link it is lost. */
  send(sample: MetricsSample): void;
  /** Undefined if the container has no figures. */
  readContainer(containerId: string): Promise<ContainerFigures | undefined>;
  readHost(): Promise<HostFigures>;
  clock: Clock;
  log: Log;
}

/** If eight cards have no persistence mode, nvidia-smi takes ten seconds. A hung one is ended after twenty. */
const READ_MS_MAX = 25_000;
const CARD_WORDS = {
  failure: 'the figures of the GPUs cannot be read',
  hangs: 'nvidia-smi does not come to an end',
};
const HOST_WORDS = {
  failure: 'the figures of this host cannot be read',
  hangs: 'the disk of the state folder does not answer',
};

/** Starts sampling. A sample begins only after the last one has ended. */
export function startSampler(deps: SamplerDeps): Sampler {
  const { clock } = deps;
  const cards = openTimed(deps.readFigures, CARD_WORDS, deps);
  const host = openTimed(deps.readHost, HOST_WORDS, deps);
  let watchedUntilMs = 0;

  const sample = async (signal: AbortSignal): Promise<'again' | void> => {
    const containers = deps.containers().slice(0, GPUS_PER_MACHINE_MAX);
    const [gpus, measured, hostFigures] = await Promise.all([
      cards.read(signal),
      Promise.all(containers.map((container) => measure(container, deps))),
      host.read(signal),
    ]);
    const ownerOf = (uuid: string): string | null =>
      containers.find(({ gpu_uuids: uuids }) => uuids.includes(uuid))?.workload_id ?? null;
    if (signal.aborted) return;
    deps.send({
      type: 'metrics',
      taken_ms: clock.monotonicMs(),
      gpus: (gpus ?? []).map((card) => ({ ...card, workload_id: ownerOf(card.uuid) })),
      containers: measured.filter((one) => one !== undefined),
      host: hostFigures ?? null,
    });
    if (clock.monotonicMs() < watchedUntilMs) return 'again';
  };
  // `gapMs` is the time between two samples that follow each other at once. Otherwise the loop waits `periodMs` in addition.
  const periodMs = METRICS_PERIOD_MS - METRICS_WATCHED_PERIOD_MS;
  const loop = startLoop({ name: 'metrics', periodMs, gapMs: METRICS_WATCHED_PERIOD_MS, run: sample }, deps);
  return {
    watch: (forMs) => {
      watchedUntilMs = clock.monotonicMs() + forMs;
      if (forMs > 0) loop.nudge();
    },
    loops: () => [loop.status()],
    stop: () => loop.stop(),
  };
}

interface Timed<T> {
  /** Undefined if the read fails or does not end in time. */
  read(signal: AbortSignal): Promise<T | undefined>;
}

/**
 * A broken card can block nvidia-smi so that not even SIGKILL ends it, and a broken disk blocks whoever reads its size. No second read is
 * started then, and nobody waits for the first.
 */
function openTimed<T>(
  take: () => Promise<T>,
  words: { failure: string; hangs: string },
  { clock, log }: Pick<SamplerDeps, 'clock' | 'log'>,
): Timed<T> {
  const quiet = openQuiet(log, words.failure);
  let underWay: Promise<T> | undefined;
  const readInTime = async (signal: AbortSignal): Promise<T | undefined> => {
    if (underWay !== undefined) throw new Error(words.hangs);
    underWay = take().finally(() => (underWay = undefined));
    const over = new AbortController();
    const tooLong = clock.sleep(READ_MS_MAX, AbortSignal.any([signal, over.signal])).then(() => {
      // The agent ends, and nobody gets this sample.
      if (signal.aborted) return undefined;
      throw new Error(words.hangs);
    });
    return Promise.race([underWay, tooLong]).finally(() => over.abort());
  };
  return { read: (signal) => quiet.read(() => readInTime(signal)) };
}

/** Turns failures into undefined, and logs the first of several in a row. */
function openQuiet(log: Log, message: string): { read<T>(take: () => Promise<T>): Promise<T | undefined> } {
  let isBroken = false;
  return {
    read: async (take) => {
      try {
        const taken = await take();
        isBroken = false;
        return taken;
      } catch (error) {
        if (!isBroken) log.warn({ detail: messageOf(error) }, message);
        isBroken = true;
        return undefined;
      }
    },
  };
}

async function measure(
  { container_id, workload_id }: MeasuredContainer,
  { readContainer }: SamplerDeps,
): Promise<ContainerSample | undefined> {
  const figures = await readContainer(container_id);
  return figures === undefined ? undefined : { workload_id, ...figures };
}
