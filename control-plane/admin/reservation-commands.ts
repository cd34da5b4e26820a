// `admin reservation ...`: contracts for reserved capacity.
import { type Command, InvalidArgumentError } from 'commander';
import type { Commitment } from '../../shared/api/reservation.ts';
import { type CommandDeps, type CommonOptions, readTime, show, withCommon } from './command.ts';
import { RESERVATION_VERBS } from '../rental/reservations/operator-routes.ts';

interface CreateOptions extends CommonOptions {
  org: string;
  title: string;
  starts: string;
  ends: string;
  renewal: string;
  gpus: Commitment;
}

const URL = '/admin/reservations';

export function addReservationCommands(admin: Command, deps: CommandDeps): void {
  const reservation = admin.command('reservation').description('contracts for reserved capacity');
  const create = reservation
    .command('create')
    .description('create a contract; the answer shows when its GPUs are set aside, and which are free')
    .requiredOption('--org <id>', 'the organisation')
    .requiredOption('--title <text>', 'a title, which the customer sees')
    .requiredOption('--starts <time>', 'a day like 2026-12-01 (UTC), or a time like 2026-12-01T09:00:00Z', readTime)
    .requiredOption('--ends <time>', 'the end, exclusive', readTime)
    .requiredOption('--gpus <type:count@region...>', 'like H100_SXM:8@eu-west; may be given several times', readGpus)
    .option('--renewal <mode>', 'auto_renew, manual or none', 'none');
  withCommon(create).action((options: CreateOptions) => {
    const { org, title, starts, ends, renewal, gpus } = options;
    const payload = { org_id: org, title, starts_at: starts, ends_at: ends, renewal, commitment: gpus };
    return show(deps, options, { method: 'POST', url: URL, payload });
  });
  withCommon(reservation.command('list').description('all contracts with their GPUs')).action(
    (options: CommonOptions) => show(deps, options, { method: 'GET', url: URL }),
  );
  withCommon(reservation.command('show <id>').description('one contract with its GPUs')).action(
    (id: string, options: CommonOptions) => show(deps, options, { method: 'GET', url: urlOf(id) }),
  );
  const extend = reservation
    .command('extend <id>')
    .description('move the end of the term to a later time')
    .requiredOption('--ends <time>', 'the new end, exclusive', readTime);
  withCommon(extend).action((id: string, options: CommonOptions & { ends: string }) =>
    show(deps, options, { method: 'POST', url: `${urlOf(id)}/extend`, payload: { ends_at: options.ends } }),
  );
  for (const [verb, meaning] of Object.entries(RESERVATION_VERBS)) {
    withCommon(reservation.command(`${verb} <id>`).description(meaning)).action((id: string, options: CommonOptions) =>
      show(deps, options, { method: 'POST', url: `${urlOf(id)}/${verb}` }),
    );
  }
}

function urlOf(id: string): string {
  return `${URL}/${encodeURIComponent(id)}`;
}

function readGpus(text: string, earlier: Commitment = []): Commitment {
  const [, gpuType = '', count = '', region = ''] = /^([^:@\s]+):(\d{1,5})@([^:@\s]+)$/.exec(text) ?? [];
  if (region === '') throw new InvalidArgumentError('must be type:count@region, like H100_SXM:8@eu-west');
  return [...earlier, { gpu_type: gpuType, gpu_count: Number(count), region }];
}
