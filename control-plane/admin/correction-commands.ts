// `admin refund`, `admin credit grant` and `admin adjust` correct mistakes. `admin statement` and `admin export` are for bookkeeping.
import { type Command, InvalidArgumentError } from 'commander';
import { Bill } from '../../shared/api/bill.ts';
import { pageSchema } from '../../shared/api/page.ts';
import { csvLine } from '../../shared/csv.ts';
import { Dollars } from '../base/http/operator.ts';
import { billRows } from '../money/bill/bill.ts';
import {
  askOrThrow,
  type CommandDeps,
  type CommonOptions,
  printAnswer,
  readTime,
  show,
  withCommon,
} from './command.ts';
import { csvOfFields, TRANSFER_COLUMNS, TransferFields } from './export-routes.ts';

interface NamedOptions extends CommonOptions {
  reference: string;
  reason: string;
}

/** Adds the options that every correction has: a reason, and a reference. A second correction with the same reference has no effect. */
function withReason(command: Command): Command {
  return withCommon(command)
    .requiredOption('--reason <text>', 'why; the customer reads it on the bill')
    .requiredOption(
      '--reference <text>',
      'a name of this correction; a second one with the same reference has no effect',
    );
}

const AMOUNT = 'dollars, like 25 or 25.50, with up to 8 decimals';

export function addRefundCommand(admin: Command, deps: CommandDeps): void {
  const refund = admin
    .command('refund <id>')
    .description('give back what a rental, a receipt or a video was charged, from supplier and fee as it was split')
    .option('--usd <amount>', `${AMOUNT}; without it all that was not refunded yet`, readDollars)
    .option('--from-platform', 'the supplier keeps its part, and the platform pays all of it');
  withReason(refund).action(
    (id: string, { usd, fromPlatform = false, reference, reason, ...options }: NamedOptions & RefundOptions) =>
      show(deps, options, {
        method: 'POST',
        url: '/admin/corrections/refunds',
        payload: { subject_id: id, ...(usd && { amount: usd }), from_platform: fromPlatform, reference, reason },
      }),
  );
}

interface RefundOptions {
  usd?: string;
  fromPlatform?: boolean;
}

export function addGrantCommand(credit: Command, deps: CommandDeps): void {
  const grant = credit
    .command('grant')
    .description('give an organisation something from our revenue')
    .requiredOption('--org <id>', 'the organisation')
    .requiredOption('--usd <amount>', AMOUNT, readDollars);
  withReason(grant).action(({ org, usd, reference, reason, ...options }: NamedOptions & { org: string; usd: string }) =>
    show(deps, options, {
      method: 'POST',
      url: '/admin/corrections/credits',
      payload: { org_id: org, amount: usd, reference, reason },
    }),
  );
}

interface AdjustOptions extends NamedOptions {
  org: string;
  up?: string;
  down?: string;
  allowDebt?: boolean;
}

export function addAdjustCommand(admin: Command, deps: CommandDeps): void {
  const adjust = admin
    .command('adjust')
    .description('correct the balance of an organisation')
    .requiredOption('--org <id>', 'the organisation')
    .option('--up <amount>', `add so much: ${AMOUNT}`, readDollars)
    .option('--down <amount>', 'take so much, at most what is available', readDollars)
    .option(
      '--allow-debt',
      'with --down: write off what the balance does not cover; the balance is then zero, not negative',
    );
  withReason(adjust).action(
    ({ org, up, down, allowDebt = false, reference, reason, ...options }: AdjustOptions, command: Command) => {
      if ((up === undefined) === (down === undefined)) return command.error('error: use either --up or --down');
      const direction = up === undefined ? 'down' : 'up';
      const about = { org_id: org, direction, amount: up ?? down, allow_debt: allowDebt, reference, reason };
      return show(deps, options, { method: 'POST', url: '/admin/corrections/adjustments', payload: about });
    },
  );
}

interface StatementOptions extends CommonOptions {
  org: string;
  month?: string;
  csv?: boolean;
}

export function addStatementCommand(admin: Command, deps: CommandDeps): void {
  const statement = admin
    .command('statement')
    .description('the bill of an organisation for a month')
    .requiredOption('--org <id>', 'the organisation')
    .option('--month <month>', 'a month in UTC, like 2026-11; without it the present one')
    .option('--csv', 'print CSV, for a spreadsheet');
  withCommon(statement).action(async ({ org, month, csv, ...options }: StatementOptions) => {
    const query = month === undefined ? '' : `?month=${encodeURIComponent(month)}`;
    const url = `/admin/balances/${encodeURIComponent(org)}/statement${query}`;
    const answer = await askOrThrow(deps, options, { method: 'GET', url });
    if (options.json === true) return printAnswer(deps, options, answer);
    const [head, ...rows] = billRows(Bill.parse(answer));
    if (csv === true) return deps.print([head, ...rows].map((row) => csvLine(row ?? [])).join(''));
    const table = rows.map((row) => Object.fromEntries(row.map((cell, i) => [String(head?.[i]), cell])));
    return printAnswer(deps, options, { data: table, next_cursor: null });
  });
}

interface ExportOptions extends CommonOptions {
  from: string;
  to: string;
  org?: string;
  subject?: string;
  kind?: string;
}

const TransferPage = pageSchema(TransferFields);

export function addExportCommand(admin: Command, deps: CommandDeps): void {
  const transfers = admin
    .command('export')
    .description('print all transfers of a window as CSV, one row for each, for bookkeeping')
    .requiredOption('--from <time>', 'the first moment: a day, or a time like 2026-12-01T09:30:00Z', readTime)
    .requiredOption(
      '--to <time>',
      'the first moment after the window; the last minute before now is left out',
      readTime,
    )
    .option('--org <id>', 'only those that changed the balance of this organisation')
    .option('--subject <id>', 'only those of this instance, receipt, job, deposit or payout')
    .option('--kind <kind>', 'only those of this kind; with --org or --subject')
    .option(
      '--config <file>',
      'configuration of the control plane; without it the one that SVC_CONFIG names, or the installed one',
    );
  transfers.action(async ({ from, to, org, subject, kind, ...options }: ExportOptions) => {
    const wanted = {
      from,
      to,
      ...(org !== undefined && { org_id: org }),
      ...(subject !== undefined && { subject_id: subject }),
      ...(kind !== undefined && { kind }),
    };
    // Each page is printed before the next one is read, so that a year needs no more memory than a page.
    for (let cursor: string | null | undefined; cursor !== null;) {
      const query = new URLSearchParams({ ...wanted, limit: '1000', ...(cursor !== undefined && { cursor }) });
      const page = TransferPage.parse(
        await askOrThrow(deps, options, { method: 'GET', url: `/admin/transfers?${query.toString()}` }),
      );
      const head = cursor === undefined ? csvLine(TRANSFER_COLUMNS) : '';
      deps.print(head + page.data.map(csvOfFields).join(''));
      cursor = page.next_cursor;
    }
  });
}

/** Checks an amount and returns the text unchanged, because a JavaScript number would lose digits. */
function readDollars(text: string): string {
  const broken = Dollars.safeParse(text).error?.issues[0];
  if (broken !== undefined) throw new InvalidArgumentError(broken.message);
  return text;
}
