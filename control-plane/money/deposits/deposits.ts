// The interface of this room: stablecoin deposits (specification 2.18).
//
//   POST /v1/deposits ──► created ──► the watcher of the chain finds transfers ──► plan ──► settled ──► senders are checked ──► credited
//                                     (a loop for each chain, one process at a time)     (a due row, which any process drives)
import type { CreateDeposit, DepositChain, DepositMethods } from '../../../shared/api/deposit.ts';
import type { LoopOptions } from '../../../shared/loop.ts';
import type { Query, Tx } from '../../base/db/db.ts';
import type { Driver } from '../../base/operations/engine.ts';
import type { Nodes, NodesOf } from './confirm.ts';
import { type CreateDeps, createDeposit, depositMethods } from './create.ts';
import { type Decisions, openDecisions } from './decisions.ts';
import { CHAINS } from './chains.ts';
import { openEvmReader } from './evm.ts';
import { openRpc, type Rpc } from './rpc.ts';
import { openScreening } from './screening.ts';
import type { ChainSettings } from './settings.ts';
import { openSolanaReader } from './solana.ts';
import { driveDeposit, type StepDeps } from './steps.ts';
import { type Deposit, dueDeposits } from './store.ts';
import { openWatcher, type WatchDeps, type Watcher } from './watch.ts';
import { openWatchLease } from './watch-lease.ts';

export interface Deposits {
  /** @throws ServiceError `deposits_unavailable`, `validation_failed`, `rate_limit_exceeded` */
  create(tx: Tx, orgId: string, request: CreateDeposit): Promise<Deposit>;
  /** What a customer can deposit now. */
  methods(query: Query): Promise<DepositMethods>;
  decisions: Decisions;
  nodesOf: NodesOf;
  watchers: readonly Watcher[];
  driver: Driver;
  loops: readonly LoopOptions[];
  /** Gives up the leases of all chains and closes the connections to nodes. Another process can then watch the chains at once. */
  close(): Promise<void>;
}

type DepositsDeps = Omit<WatchDeps, 'nudge'> &
  CreateDeps &
  Pick<StepDeps, 'ledger'> & {
    /** Called after a commit that made a deposit due. */
    nudge(): void;
  };

/** Shorter than the time between two final blocks on most chains. */
const WATCH_PERIOD_MS = 10_000;

export function openDeposits(deps: DepositsDeps): Deposits {
  const { db, settings, log } = deps;
  const rpcs: Rpc[] = [];
  const nodes = new Map<DepositChain, Nodes>();
  for (const [chain, chainSettings] of settings?.chains ?? [])
    nodes.set(chain, openNodes(chain, chainSettings, rpcs, deps));
  const nodesOf: NodesOf = (chain) => nodes.get(chain);
  const screen = openScreening({ db, log, readerOf: (chain) => nodesOf(chain)?.first });
  const steps: StepDeps = { ...deps, nodesOf, screen, toleranceUnits: settings?.toleranceUnits ?? 0n };
  const watchers = [...nodes].map(([chain, { first }]) =>
    openWatcher(
      {
        chain,
        reader: first,
        lease: openWatchLease(`deposits/${chain}`, deps),
        blocksPerQuery: settings?.chains.get(chain)?.blocksPerQuery ?? 1,
      },
      deps,
    ),
  );
  return {
    create: (tx, orgId, request) => createDeposit(tx, orgId, request, deps),
    methods: (query) => depositMethods(query, settings),
    decisions: openDecisions({ ...steps, ids: deps.ids, nudge: deps.nudge }),
    nodesOf,
    watchers,
    driver: {
      name: 'deposits',
      due: (nowMs, limit) => dueDeposits(db.read, nowMs, limit),
      drive: (id) => driveDeposit(id, steps),
    },
    loops: watchers.map(({ chain, tick }) => ({
      name: `deposits-${chain}`,
      periodMs: WATCH_PERIOD_MS,
      run: () => tick(),
    })),
    close: async () => {
      await Promise.all(watchers.map((watcher) => watcher.close()));
      await Promise.all(rpcs.map((rpc) => rpc.close()));
    },
  };
}

function openNodes(chain: DepositChain, settings: ChainSettings, rpcs: Rpc[], deps: DepositsDeps): Nodes {
  const readerAt = (url: string): Nodes['first'] => {
    const rpc = openRpc(url, deps);
    rpcs.push(rpc);
    return CHAINS[chain].family === 'evm' ? openEvmReader(chain, settings, rpc) : openSolanaReader(settings, rpc);
  };
  const { second } = settings;
  return {
    first: readerAt(settings.rpcUrl),
    second: second === null ? null : { reader: readerAt(second.rpcUrl), fromUnits: second.fromUnits },
  };
}
