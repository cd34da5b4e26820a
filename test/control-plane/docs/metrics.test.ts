// The page on metrics and loops names exactly what a control plane exports and runs.
import { afterEach, beforeEach, expect, test } from 'vitest';
import { type Brings, brought } from '../../../control-plane/brings.ts';
import { addMeasures, openMetrics } from '../../../control-plane/base/http/metrics.ts';
import { bringsOfSockets } from '../../../control-plane/listeners.ts';
import { allLoops, startLoops, startWatchdog, stopLoops } from '../../../control-plane/loops.ts';
import { offlineDeposits } from '../../kit/deposits.ts';
import { pageOf, readPages } from '../../kit/manual/documents.ts';
import { openWorld, type World } from '../../kit/world.ts';

let world: World;
let brings: readonly Brings[];
beforeEach(async () => {
  const mail = { isConfigured: true, send: async () => true };
  world = await openWorld(1, { mail, settings: { deposits: offlineDeposits() } });
  const sockets = bringsOfSockets(
    { purgeIdempotencyKeys: async () => 0 },
    { sync: async () => undefined, unopened: () => 0 },
    { api: undefined, apps: undefined, refresh: () => undefined },
  );
  const secondaries = { count: async () => 0, endDead: async () => 0 };
  brings = [...world.brings({ secondaries }), sockets];
});
afterEach(() => world.close());

const page = pageOf(readPages(), 'control-plane/docs/metrics.md').text;

/** The first cells of each row of the table below a heading. */
function rowsOf(heading: string, cells: number): string[] {
  const section = page.split(/^## /m).find((text) => text.startsWith(`${heading}\n`)) ?? '';
  const rows = section.split('\n').filter((line) => line.startsWith('| `'));
  return rows.map((row) =>
    row
      .split('|')
      .slice(1, cells + 1)
      .map((cell) => cell.trim())
      .join(' '),
  );
}

test('names every metric with its type, its labels and the process that exports it', async () => {
  const exported = async (isEverywhere: boolean): Promise<string[]> => {
    const { registry } = openMetrics();
    // Those of the process itself, which every control plane has, are not measures of a room.
    const ofProcess = await registry.getMetricsAsJSON();
    const measures = brought(brings, 'measures').filter(({ everywhere = false }) => everywhere === isEverywhere);
    addMeasures(registry, measures);
    const labelsOf = new Map(measures.map(({ name, labels = [] }) => [name, labels]));
    labelsOf.set('http_request_duration_seconds', ['method', 'route', 'status']);
    const left = new Set(isEverywhere ? [] : ofProcess.map(({ name }) => name));
    return (await registry.getMetricsAsJSON())
      .filter(({ name }) => !left.has(name))
      .map(({ name, type }) =>
        [`\`${name}\``, type, (labelsOf.get(name) ?? []).map((label) => `\`${label}\``).join(', ')].join(' ').trim(),
      )
      .toSorted();
  };
  const listed = (heading: string): string[] =>
    rowsOf(heading, 4)
      .map((row) => row.replace(/^(\S+ \S+) [a-z0-9 ]+(?= `|$)/, '$1').trim())
      .toSorted();
  expect(listed('Metrics of every control plane')).toEqual(await exported(true));
  expect(listed('Metrics of the primary')).toEqual(await exported(false));
});

test('gives each metric the unit that its name ends with', () => {
  const rows = [...rowsOf('Metrics of every control plane', 3), ...rowsOf('Metrics of the primary', 3)];
  const units = { _timestamp_seconds: 'epoch seconds', _seconds: 'seconds', _bytes: 'bytes', _dollars: 'dollars' };
  const wrong = rows.filter((row) => {
    const [end, unit] = Object.entries(units).find(([each]) => row.includes(`${each}\``)) ?? [];
    return end === undefined ? !/ (count|0 or 1|0 to 1)$/.test(row) : !row.endsWith(` ${unit}`);
  });
  expect(wrong).toEqual([]);
});

test('names every loop, with its period, and where it runs', async () => {
  const running = startLoops(world.core, [], 'primary');
  startWatchdog(world.core, running, { alive: async () => undefined, alivePeriodMs: 20_000 });
  const own = allLoops(running).map((loop) => loop.status());
  await stopLoops(running);
  const loops = [
    ...brought(brings, 'loops').map(({ everywhere = false, ...loop }) => ({ ...loop, everywhere })),
    ...own.map(({ name, period_ms: periodMs }) => ({ name, periodMs, everywhere: name === 'watchdog' })),
  ];
  const rows = loops.map(({ name, periodMs, everywhere }) => {
    const named = name.replace(/^deposits-.*/, 'deposits-<chain>');
    return `\`${named}\` ${periodText(periodMs)} ${everywhere ? 'everywhere' : 'primary'}`;
  });
  expect(rowsOf('Loops', 3).toSorted()).toEqual([...new Set(rows)].toSorted());
});

function periodText(ms: number): string {
  const [unit, ofUnit] = [
    ['h', 3_600_000] as const,
    ['min', 60_000] as const,
    ['s', 1_000] as const,
    ['ms', 1] as const,
  ].find(([, each]) => ms % each === 0) ?? ['ms', 1];
  return `${ms / ofUnit} ${unit}`;
}
