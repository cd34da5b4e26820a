// `instance metrics` and `machine metrics`: print the current figures of GPUs, once or every second.
import type { Command } from 'commander';
import { z } from 'zod';
import { unlessAway } from './client.ts';
import { type CommonOptions, show, signedIn, type SvcDeps, withCommon } from './command.ts';
import { resolveName } from './names.ts';
import { CLEAR_SCREEN } from './terminal.ts';

interface MetricsOptions extends CommonOptions {
  watch?: boolean;
}

const PERIOD_MS = 1_000;
const GPU = [
  'index',
  'utilization_percent',
  'memory_used_mib',
  'memory_free_mib',
  'power_watts',
  'temperature_celsius',
  'sm_clock_mhz',
  'throttle_reasons',
] as const;
const USAGE = [
  'cpu_cores_used',
  'cpu_cores',
  'memory_used_bytes',
  'memory_limit_bytes',
  'disk_used_bytes',
  'disk_total_bytes',
  'network_received_bytes_per_second',
  'network_sent_bytes_per_second',
] as const;

const Figures = z.record(z.string(), z.unknown());
/** Loose, so that a newer API with more members is read too. */
const Metrics = z.looseObject({
  latest: z
    .looseObject({
      at: z.string(),
      gpus: z.array(Figures),
      container: Figures.nullish(),
      host: Figures.nullish(),
    })
    .nullable(),
});

export function addMetricsCommands(instance: Command, machine: Command, deps: SvcDeps): void {
  metricsCommand(instance, deps).description('show what the GPUs and the container of an instance use, by id or name');
  metricsCommand(machine, deps).description(
    'show what the GPUs of a machine, by id or name, and the machine as a whole, use',
  );
}

function metricsCommand(noun: Command, deps: SvcDeps): Command {
  const isInstance = noun.name() === 'instance';
  return withCommon(noun.command('metrics <id>'))
    .option('--watch', 'again every second, until it is interrupted')
    .action(async (name: string, options: MetricsOptions) => {
      const client = signedIn(deps, options);
      const id = await resolveName(client, name, { kind: isInstance ? 'instance' : 'machine', isRead: true });
      const path = `/${isInstance ? 'instances' : 'community/machines'}/${id}/metrics`;
      const isWatched = options.watch === true;
      for (let wasAway = false; ;) {
        const asked = client.json({ method: 'GET', path });
        const body = await (isWatched ? unlessAway(asked) : asked);
        const isAway = body === undefined;
        if (!isAway) print(body, options, deps);
        else if (!wasAway && !deps.interrupted.aborted)
          deps.tell('The API cannot be reached. Asking again until it answers.\n');
        wasAway = isAway;
        if (!isWatched) return;
        await deps.clock.sleep(PERIOD_MS, deps.interrupted);
        if (deps.interrupted.aborted) return;
      }
    });
}

function print(body: unknown, options: MetricsOptions, deps: SvcDeps): void {
  if (options.json === true) return deps.print(`${JSON.stringify(body)}\n`);
  const { latest } = Metrics.parse(body);
  if (latest === null) return deps.tell('There are no figures of the last minutes.\n');
  if (options.watch === true && deps.isTerminal) deps.print(CLEAR_SCREEN);
  show(deps, options, latest.gpus, { columns: GPU, id: 'uuid' });
  const whole = latest.container ?? latest.host;
  if (whole === null || whole === undefined || options.quiet === true) return;
  show(deps, options, { at: latest.at, ...whole }, { columns: ['at', ...USAGE], id: 'at' });
}
