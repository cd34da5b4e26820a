// Prometheus metrics of this process: those of Node, request durations, and the measures of the rooms.
import { collectDefaultMetrics, Counter, Gauge, Histogram, Registry } from 'prom-client';

export interface Metrics {
  readonly registry: Registry;
  /** `route` is the pattern, never the concrete path, so that there are few label values. */
  observeRequest(labels: { method: string; route: string; status: number }, seconds: number): void;
  observeCommit(bodies: number, seconds: number): void;
  /** All metrics in the Prometheus text format. */
  text(): Promise<string>;
  readonly contentType: string;
}

/** A metric of a room, read at each scrape. The alerts in systemd/alerts.yaml use these names. */
export interface Measure {
  name: string;
  help: string;
  /** A `counter` only grows while the process lives. */
  kind: 'gauge' | 'counter';
  labels?: readonly string[];
  /** Each control plane has it, also a secondary. All others are about the service, so only the primary has them. */
  everywhere?: boolean;
  read(): Promise<Sample[]> | Sample[];
}

interface Sample {
  labels?: Record<string, string>;
  value: number;
}

/** One sample without labels. */
export function one(value: number): Sample[] {
  return [{ value }];
}

/** If several rooms bring a measure of the same name, it contains the samples of all of them. */
export function addMeasures(registry: Registry, measures: readonly Measure[]): void {
  for (const [first, ...others] of Map.groupBy(measures, ({ name }) => name).values()) {
    if (first !== undefined) addMeasure(registry, first, others);
  }
}

/** Samples that a room no longer reports are removed. */
function addMeasure(registry: Registry, first: Measure, others: readonly Measure[]): void {
  const { name, help, kind, labels = [] } = first;
  const Metric = kind === 'gauge' ? Gauge : Counter;
  const metric = new Metric({
    name,
    help,
    labelNames: labels,
    registers: [registry],
    collect: async () => {
      const samples = await Promise.all([first, ...others].map(async (measure) => measure.read()));
      metric.reset();
      for (const sample of samples.flat()) metric.inc(sample.labels ?? {}, sample.value);
    },
  });
}

/** The media type of the text format. */
export const PROMETHEUS_TYPE = Registry.PROMETHEUS_CONTENT_TYPE;

/** The metrics of Node: one set for the process. A further set would watch the event loop and each garbage collection once more, for ever. */
const ofNode: { registry?: Registry } = {};

export function openMetrics(): Metrics {
  const node = (ofNode.registry ??= watchNode());
  const registry = new Registry();
  const durations = new Histogram({
    name: 'http_request_duration_seconds',
    help: 'Time from the request head to the end of the response',
    labelNames: ['method', 'route', 'status'],
    buckets: [0.002, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 10],
    registers: [registry],
  });
  // Finding the series of some labels takes longer than the observation.
  const seriesOf = new Map<string, Histogram.Internal<'method' | 'route' | 'status'>>();
  const commits = new Histogram({
    name: 'svc_db_commit_duration_seconds',
    help: 'Time of a commit with the transaction bodies that share it',
    buckets: [0.001, 0.002, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 5],
    registers: [registry],
  });
  const bodies = new Histogram({
    name: 'svc_db_commit_bodies',
    help: 'Transaction bodies that share a commit',
    buckets: [1, 2, 4, 8, 16, 32, 64, 128, 256, 512],
    registers: [registry],
  });
  return {
    registry,
    observeCommit: (count, seconds) => {
      commits.observe(seconds);
      bodies.observe(count);
    },
    observeRequest: ({ method, route, status }, seconds) => {
      const key = `${method} ${route} ${status}`;
      let series = seriesOf.get(key);
      if (series === undefined) seriesOf.set(key, (series = durations.labels(method, route, String(status))));
      series.observe(seconds);
    },
    text: () => Registry.merge([node, registry]).metrics(),
    contentType: registry.contentType,
  };
}

function watchNode(): Registry {
  const registry = new Registry();
  collectDefaultMetrics({ register: registry });
  return registry;
}
