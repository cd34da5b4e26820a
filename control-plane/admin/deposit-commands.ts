// `admin deposit ...`: stablecoin deposits, the operator's decisions about them, their addresses and chains, and sanctioned senders.
import { type Command, InvalidArgumentError } from 'commander';
import { z } from 'zod';
import { csvLine } from '../../shared/csv.ts';
import {
  askOrThrow,
  type CommandDeps,
  type CommonOptions,
  type ListOptions,
  printAnswer,
  show,
  showPage,
  tableOf,
  withCommon,
  withPages,
} from './command.ts';

const BASE = '/admin/deposits';

interface DepositListOptions extends ListOptions {
  status?: string;
  org?: string;
  waiting?: boolean;
}

interface ReasonOptions extends CommonOptions {
  reason: string;
}

export function addDepositCommands(admin: Command, deps: CommandDeps): void {
  const deposit = admin.command('deposit').description('stablecoin deposits');
  withPages(
    deposit
      .command('list')
      .description('newest first')
      .option('--waiting', 'only those that wait for a decision')
      .option('--status <status>', 'only those with this status')
      .option('--org <id>', 'only those of this organisation'),
  ).action(({ status, org, waiting, ...options }: DepositListOptions) =>
    showPage(deps, options, BASE, { status, org_id: org, waiting: waiting === true ? 'true' : undefined }),
  );
  withCommon(
    deposit.command('show <id>').description('one of them, with its transfers and the changes of its status'),
  ).action((id: string, options: CommonOptions) => showDeposit(deps, id, options));
  addDecisions(deposit, deps);
  addChains(deposit, deps);
  addAddresses(deposit.command('addresses').description('addresses that deposits are paid to'), deps);
  const screening = deposit.command('screening').description('senders that no tokens are taken from');
  withCommon(
    screening
      .command('import <file>')
      .description('add the addresses of a file, one in a line')
      .requiredOption('--source <text>', 'where the list is from'),
  ).action((file: string, { source, ...options }: CommonOptions & { source: string }) =>
    show(deps, options, {
      method: 'POST',
      url: `${BASE}/screening`,
      payload: { source, addresses: linesOf(deps.readFile(file)) },
    }),
  );
}

const Shown = z.object({
  deposit: z.record(z.string(), z.unknown()),
  transfers: z.array(z.record(z.string(), z.unknown())),
  history: z.array(z.record(z.string(), z.unknown())),
});

async function showDeposit(deps: CommandDeps, id: string, options: CommonOptions): Promise<void> {
  const answer = await askOrThrow(deps, options, { method: 'GET', url: `${BASE}/${encodeURIComponent(id)}` });
  if (options.json === true) return printAnswer(deps, options, answer);
  const { deposit, transfers, history } = Shown.parse(answer);
  deps.print(`${tableOf([deposit])}\ntransfers:\n${tableOf(transfers)}\nhistory:\n${tableOf(history)}`);
}

const DECISIONS = {
  credit: 'credit one whose senders nobody could check, or what came late',
  reject: 'cancel an open one, or refuse tokens whose senders nobody could check',
} as const;

const OF_TRANSACTION = {
  returned: 'note that you have sent back what one transaction brought and what is in suspense',
  rescan: 'look for the transfers of one transaction, e.g. one that came after 30 days',
} as const;

function addDecisions(deposit: Command, deps: CommandDeps): void {
  for (const verb of ['credit', 'reject'] as const) {
    withCommon(
      deposit
        .command(`${verb} <id>`)
        .description(DECISIONS[verb])
        .requiredOption('--reason <text>', 'why; it is kept in the audit and in the books'),
    ).action((id: string, { reason, ...options }: ReasonOptions) =>
      show(deps, options, { method: 'POST', url: `${BASE}/${encodeURIComponent(id)}/${verb}`, payload: { reason } }),
    );
  }
  for (const [verb, description] of Object.entries(OF_TRANSACTION)) {
    withCommon(
      deposit
        .command(`${verb} <id>`)
        .description(description)
        .requiredOption('--tx <hash>', 'the transaction that brought the tokens')
        .requiredOption('--reason <text>', 'why; it is kept in the audit'),
    ).action((id: string, { tx, reason, ...options }: ReasonOptions & { tx: string }) =>
      show(deps, options, {
        method: 'POST',
        url: `${BASE}/${encodeURIComponent(id)}/${verb}`,
        payload: { tx_hash: tx, reason },
      }),
    );
  }
}

function addChains(deposit: Command, deps: CommandDeps): void {
  withCommon(deposit.command('chains').description('how far each chain was read, and why one is paused')).action(
    (options: CommonOptions) => show(deps, options, { method: 'GET', url: `${BASE}/chains` }),
  );
  withCommon(
    deposit
      .command('rewind <chain>')
      .description('read a chain again from after a block; nothing is credited twice')
      .requiredOption('--block <number>', 'the newest block that is right', readBlock)
      .requiredOption('--reason <text>', 'why; it is kept in the audit'),
  ).action((chain: string, { block, reason, ...options }: ReasonOptions & { block: number }) =>
    show(deps, options, {
      method: 'POST',
      url: `${BASE}/chains/${encodeURIComponent(chain)}/rewind`,
      payload: { block, reason },
    }),
  );
}

/** JavaScript would read an empty text as block 0, and the whole chain would be read again. */
function readBlock(text: string): number {
  if (!/^\d{1,15}$/.test(text)) throw new InvalidArgumentError('must be the number of a block');
  return Number(text);
}

const Balances = z.object({
  data: z.array(z.record(z.string(), z.union([z.string(), z.number()]))),
  next_after_index: z.int().nullable(),
});
const COLUMNS = ['index', 'address', 'chain', 'asset', 'received', 'balance'];

function addAddresses(addresses: Command, deps: CommandDeps): void {
  withPages(
    addresses
      .command('list')
      .description('all of them, by index')
      .option('--family <family>', 'evm or solana; evm without it'),
  ).action(({ family, ...options }: ListOptions & { family?: string }) =>
    showPage(deps, options, `${BASE}/addresses`, { family }),
  );
  withCommon(
    addresses
      .command('import <file>')
      .description('add addresses on Solana, one in a line, each for one deposit; all of them or none'),
  ).action((file: string, options: CommonOptions) =>
    show(deps, options, {
      method: 'POST',
      url: `${BASE}/addresses`,
      payload: { addresses: linesOf(deps.readFile(file)) },
    }),
  );
  withCommon(
    addresses
      .command('retire')
      .description('give the free addresses on Solana to no deposit any more, e.g. after a backup was restored')
      .requiredOption('--reason <text>', 'why; it is kept in the audit'),
  ).action(({ reason, ...options }: ReasonOptions) =>
    show(deps, options, { method: 'POST', url: `${BASE}/addresses/retire`, payload: { reason } }),
  );
  addresses
    .command('export')
    .description('print what each address that got tokens has now, as CSV, for the wallet that collects them')
    .requiredOption('--chain <chain>', 'the chain')
    .option(
      '--config <file>',
      'configuration of the control plane; without it the one that SVC_CONFIG names, or the installed one',
    )
    .action(async ({ chain, ...options }: CommonOptions & { chain: string }) => {
      deps.print(csvLine(COLUMNS));
      for (let after: number | null = -1; after !== null;) {
        const query = new URLSearchParams({ chain, after_index: String(after) });
        const answer = await askOrThrow(deps, options, { method: 'GET', url: `${BASE}/balances?${query.toString()}` });
        const { data, next_after_index: next } = Balances.parse(answer);
        deps.print(data.map((row) => csvLine(COLUMNS.map((column) => row[column] ?? ''))).join(''));
        after = next;
      }
    });
}

function linesOf(text: string): string[] {
  return text
    .split('\n')
    .map((line) => line.trim())
    .filter((line) => line !== '');
}
