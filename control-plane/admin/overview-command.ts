// `admin overview`: the figures, what waits, the loops, the due rows and the model servers, a table each.
import type { Command } from 'commander';
import { Overview } from '../../shared/api/overview.ts';
import { askOrThrow, type CommandDeps, type CommonOptions, jsonLine, tableOf, withCommon } from './command.ts';

const MINUTE_S = 60;
const GB = 1e9;

export function addOverviewCommand(admin: Command, deps: CommandDeps): void {
  withCommon(admin.command('overview').description('what the service does now, and what waits for an operator')).action(
    async (options: CommonOptions) => {
      const answer = await askOrThrow(deps, options, { method: 'GET', url: '/admin/overview' });
      deps.print(options.json === true ? jsonLine(answer) : textOf(Overview.parse(answer)));
    },
  );
}

function textOf(overview: Overview): string {
  const { version, epoch, started_at: started, at, waiting, loops, due, models, traffic } = overview;
  const minutes = Math.floor((Date.parse(at) - Date.parse(started)) / 1000 / MINUTE_S);
  const parts = [
    `svc ${version}, up ${minutes} minutes, epoch ${epoch}, read at ${at}\n`,
    tableOf(figuresOf(overview)),
    `Needs you: ${waiting.count}\n${waiting.count === 0 ? '' : tableOf(waiting.oldest)}`,
    `Loops\n${tableOf(loops)}`,
    `Due rows\n${tableOf(due)}`,
    `Model servers\n${tableOf(models)}`,
    `Requests to models\n${tableOf(traffic)}`,
  ];
  return parts.join('\n');
}

function figuresOf({ ledger, machines, gpus, outages, launches, ...rest }: Overview): Record<string, unknown>[] {
  const { disk, database_bytes: bytes, last_day: day, secondaries, paused } = rest;
  const used = disk === null ? 'not measured' : `${Math.round((100 * disk.used_bytes) / disk.total_bytes)} % used`;
  const rows: [string, string, string][] = [
    ...paused.map(({ what, since, by, reason }): [string, string, string] => [
      `${what} paused`,
      `since ${since}`,
      `by ${by}: ${reason}`,
    ]),
    [
      'ledger',
      ledger.faults === 0 ? 'no fault found' : `${ledger.faults} faults`,
      `${ledger.transfers} transfers, proven at ${ledger.new_proven_at ?? 'no time yet'}`,
    ],
    ['control planes', `${1 + secondaries}`, 'the primary and those that serve beside it'],
    ['links', `${machines.linked} of ${machines.listed} machines`, ''],
    [
      'rented',
      `${gpus.rented} GPUs`,
      `on the market now: ${gpus.offered}, rented or not; $${gpus.revenue_per_hour} an hour`,
    ],
    ['outages now', `${outages.machines} machines`, `${outages.rentals} rentals are not charged`],
    [
      'launches',
      `${launches.ran} of ${launches.asked} ran`,
      `${launches.failed} failed, median ${launches.median_seconds ?? '-'} s, last ${launches.seconds / MINUTE_S} minutes`,
    ],
    [
      'last 24 hours',
      `${day.outages} outages`,
      `$${day.credited} credited, at most ${day.silent_most} machines without a link`,
    ],
    ['disk', used, `database ${(bytes / GB).toFixed(2)} GB`],
  ];
  return rows.map(([figure, value, detail]) => ({ figure, value, detail }));
}
