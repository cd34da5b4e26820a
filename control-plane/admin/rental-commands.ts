// `admin instance ...`: rentals of all organisations, and the evidence for their bills. `admin reservation ...`: contracts for reserved capacity.
// `admin outage ...`: outages, with the rentals that they have stopped.
import { type Command, InvalidArgumentError } from 'commander';
import {
  type CommandDeps,
  type CommonOptions,
  type ListOptions,
  show,
  showPage,
  showParts,
  withCommon,
  withPages,
  readTime,
} from './command.ts';
import type { Commitment } from '../../shared/api/reservation.ts';
import { RESERVATION_VERBS } from '../rental/reservations/operator-routes.ts';

interface InstanceListOptions extends ListOptions {
  org?: string;
  machine?: string;
  status?: string;
}

export function addInstanceCommands(admin: Command, deps: CommandDeps): void {
  const instance = admin.command('instance').description('rentals of all organisations');
  withPages(
    instance
      .command('list')
      .description('list instances that have not ended, newest first')
      .option('--org <id>', 'only those of this organisation')
      .option('--machine <id>', 'only those on this machine')
      .option('--status <status>', 'only those with this status; `any` includes ended ones'),
  ).action(({ org, machine, status, ...options }: InstanceListOptions) =>
    showPage(deps, options, '/admin/instances', { org_id: org, machine_id: machine, status }),
  );
  const urlOf = (id: string): string => `/admin/instances/${encodeURIComponent(id)}`;
  withCommon(instance.command('show <id>').description('one of them')).action((id: string, options: CommonOptions) =>
    show(deps, options, { method: 'GET', url: urlOf(id) }),
  );
  withCommon(
    instance
      .command('why <id>')
      .description(
        'show what decided its bill: events, probes, charged and uncharged time, credits, with their evidence',
      ),
  ).action((id: string, options: CommonOptions) => show(deps, options, { method: 'GET', url: `${urlOf(id)}/why` }));
  withCommon(
    instance
      .command('placement <id>')
      .description(
        'explain its placement: what each condition removes now, the candidates, and what would work instead',
      ),
  ).action((id: string, options: CommonOptions) =>
    showParts(deps, options, { method: 'GET', url: `${urlOf(id)}/placement` }),
  );
  withCommon(
    instance
      .command('end <id>')
      .description('end it now; its cost until now stays charged')
      .requiredOption('--reason <text>', 'the reason, which its customer reads'),
  ).action((id: string, { reason, ...options }: CommonOptions & { reason: string }) =>
    show(deps, options, { method: 'POST', url: `${urlOf(id)}/end`, payload: { reason } }),
  );
}

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
  withPages(reservation.command('list').description('all contracts with their GPUs, newest first')).action(
    (options: ListOptions) => showPage(deps, options, URL),
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

interface OutageOptions extends ListOptions {
  open?: boolean;
  machine?: string;
}

export function addOutageCommands(admin: Command, deps: CommandDeps): void {
  const outage = admin.command('outage').description('outages of hosts and of our own');
  withPages(
    outage
      .command('list')
      .description('all of them, newest first: what stopped how many rentals, how long, and what that gave')
      .option('--open', 'only those that last')
      .option('--machine <id>', 'only those of this machine'),
  ).action(({ open = false, machine, ...options }: OutageOptions) =>
    showPage(deps, options, '/admin/outages', { open: open ? 'true' : undefined, machine_id: machine }),
  );
  withCommon(outage.command('show <id>').description('one of them, with its rentals and their credits')).action(
    (id: string, options: CommonOptions) =>
      showParts(deps, options, { method: 'GET', url: `/admin/outages/${encodeURIComponent(id)}` }),
  );
}

function urlOf(id: string): string {
  return `${URL}/${encodeURIComponent(id)}`;
}

function readGpus(text: string, earlier: Commitment = []): Commitment {
  const [, gpuType = '', count = '', region = ''] = /^([^:@\s]+):(\d{1,5})@([^:@\s]+)$/.exec(text) ?? [];
  if (region === '') throw new InvalidArgumentError('must be type:count@region, like H100_SXM:8@eu-west');
  return [...earlier, { gpu_type: gpuType, gpu_count: Number(count), region }];
}
