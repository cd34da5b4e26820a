// What customers and suppliers see: a customer the GPUs and the container of an instance, a supplier the GPUs and the machine. A supplier
// sees nothing from inside a container.
import type { InstanceMetrics, MachineMetrics } from '../../../shared/api/metrics.ts';
import { isoTime } from '../../../shared/clock.ts';
import { CONTAINER_NAMES, figuresOf, figuresOfInstance, GPU_NAMES, HOST_NAMES, type StoredGpu } from './figures.ts';
import type { FleetMetrics, LiveFigures } from './metrics.ts';
import type { StoredMinute } from './store.ts';
import { type GpuPoints, named, newGpuPoints, newPoints, pointsOf, type Window } from './series.ts';

/** Figures with averages: the throttle reasons have none. */
type Averaged = Exclude<(typeof GPU_NAMES)[number], 'throttle_reasons'>;
const AVERAGED = GPU_NAMES.filter((name): name is Averaged => name !== 'throttle_reasons');

/** An instance and its last machine. `machineId` is null before the first placement. */
export interface MeasuredInstance {
  id: string;
  machineId: string | null;
  /** True if the instance has GPUs now. Only then do live figures mean anything. */
  isLive: boolean;
}

export async function instanceMetrics(
  instance: MeasuredInstance,
  window: Window,
  metrics: FleetMetrics,
): Promise<InstanceMetrics> {
  const { id, machineId, isLive } = instance;
  const gpus = newGpuPoints(window);
  const container = newPoints(window, CONTAINER_NAMES);
  let hasContainer = false;
  const take = ({ minute_ms: minuteMs, figures }: StoredMinute): void => {
    const own = figuresOfInstance(figures, id);
    for (const gpu of own.gpus) gpus.add(minuteMs, gpu);
    for (const one of own.containers) container.add(minuteMs, one);
    hasContainer ||= own.containers.length > 0;
  };
  if (machineId !== null) await metrics.eachMinute(machineId, window, take);
  const live = machineId === null || !isLive ? undefined : await metrics.look(machineId);
  return {
    instance_id: id,
    ...spanOf(window),
    // The container counts its own GPUs only.
    gpus: seriesOf(gpus).map((gpu, index) => ({ ...gpu, index })),
    container: hasContainer ? container.series(CONTAINER_NAMES) : null,
    latest: live === undefined ? null : latestOfInstance(live, id),
  };
}

export async function machineMetrics(
  machineId: string,
  window: Window,
  metrics: FleetMetrics,
): Promise<MachineMetrics> {
  const gpus = newGpuPoints(window);
  const host = newPoints(window, HOST_NAMES);
  let hasHost = false;
  await metrics.eachMinute(machineId, window, ({ minute_ms: minuteMs, figures }) => {
    const shown = figuresOf(figures);
    for (const gpu of shown.gpus) gpus.add(minuteMs, gpu);
    if (shown.host === null) return;
    host.add(minuteMs, shown.host);
    hasHost = true;
  });
  const live = await metrics.look(machineId);
  return {
    machine_id: machineId,
    ...spanOf(window),
    gpus: seriesOf(gpus),
    host: hasHost ? host.series(HOST_NAMES) : null,
    latest:
      live === undefined
        ? null
        : {
            at: isoTime(live.sampledMs),
            gpus: live.figures.gpus.map(gpuNow),
            host: live.figures.host === null ? null : named(HOST_NAMES, live.figures.host),
          },
  };
}

function latestOfInstance({ sampledMs, figures }: LiveFigures, instanceId: string): InstanceMetrics['latest'] {
  const gpus = gpusOf(figures.gpus, instanceId);
  const container = figures.containers.find(({ instance_id: id }) => id === instanceId);
  if (gpus.length === 0 && container === undefined) return null;
  return {
    at: isoTime(sampledMs),
    gpus: gpus.map(gpuNow),
    container: container === undefined ? null : named(CONTAINER_NAMES, container),
  };
}

/** The GPUs of an instance with the indices that its container sees. */
export function gpusOf(gpus: readonly StoredGpu[], instanceId: string): StoredGpu[] {
  return gpus
    .filter((gpu) => gpu.instance_id === instanceId)
    .toSorted((a, b) => a.index - b.index)
    .map((gpu, index) => ({ ...gpu, index }));
}

function spanOf(window: Window): Pick<InstanceMetrics, 'from' | 'until' | 'step_s' | 'points'> {
  return {
    from: isoTime(window.fromMs),
    until: isoTime(window.untilMs),
    step_s: window.stepMs / 1000,
    points: pointsOf(window),
  };
}

function seriesOf(gpus: GpuPoints): InstanceMetrics['gpus'] {
  return gpus.all().map(({ uuid, index, points }) => ({
    uuid,
    index,
    ...points.series(AVERAGED),
    throttle_reasons: points.series(['throttle_reasons']).throttle_reasons.max,
  }));
}

function gpuNow(gpu: StoredGpu): NonNullable<InstanceMetrics['latest']>['gpus'][number] {
  return { uuid: gpu.uuid, index: gpu.index, ...named(GPU_NAMES, gpu) };
}
