// What this room adds to the house: routes, the watchers of chains, the driver of deposits, metrics, and the proof.
import type { DepositChain } from '../../../shared/api/deposit.ts';
import type { Clock } from '../../../shared/clock.ts';
import type { Db } from '../../base/db/db.ts';
import type { Events } from '../../base/events/events.ts';
import type { Cursors } from '../../base/http/cursors.ts';
import type { Measure } from '../../base/http/metrics.ts';
import { addressPools } from './addresses-store.ts';
import { countBehind } from './accounts-store.ts';
import { CHAINS } from './chains.ts';
import { allChains, type ChainRow } from './chains-store.ts';
import { depositChainRoutes } from './chain-routes.ts';
import type { Deposits } from './deposits.ts';
import { depositOperatorRoutes } from './operator-routes.ts';
import { DUE_DEPOSITS, waitingDeposits } from './overview.ts';
import { BILLED } from './posting.ts';
import { DEPOSIT_FEED, depositRoutes } from './routes.ts';
import { countByStatus, countWaiting } from './store.ts';
import { DEPOSIT_PROOFS } from './verify.ts';

interface Deps {
  db: Db;
  clock: Clock;
  cursors: Cursors;
  events: Pick<Events, 'ofSubject'>;
  deposits: Deposits;
}

export function depositsBrings(deps: Deps) {
  const { deposits } = deps;
  return {
    routes: depositRoutes(deps),
    operatorRoutes: [...depositChainRoutes(deps), ...depositOperatorRoutes(deps)],
    drivers: [deposits.driver],
    loops: deposits.loops,
    measures: measures(deps),
    billed: BILLED,
    waits: [waitingDeposits],
    dueRows: [DUE_DEPOSITS],
    pages: DEPOSIT_PROOFS,
    feeds: [DEPOSIT_FEED],
    close: deposits.close,
  };
}

function measures({ db, clock, deposits }: Deps): Measure[] {
  const ofChains = async (valueOf: (row: ChainRow, chain: DepositChain) => number | Promise<number>) => {
    const rows = new Map((await allChains(db.read)).map((row) => [row.id, row]));
    const values = deposits.watchers.map(async ({ chain }) => {
      const row = rows.get(chain);
      return row === undefined ? [] : [{ labels: { chain }, value: await valueOf(row, chain) }];
    });
    return (await Promise.all(values)).flat();
  };
  return [
    {
      name: 'svc_deposits',
      help: 'Stablecoin deposits that are not decided, by status',
      kind: 'gauge',
      labels: ['status'],
      read: async () =>
        (await countByStatus(db.read)).map(({ status, count }) => ({ labels: { status }, value: count })),
    },
    {
      name: 'svc_deposits_waiting',
      help: 'Deposits that wait for the operator: held, noted (a node does not confirm them), or with tokens in suspense',
      kind: 'gauge',
      labels: ['reason'],
      read: async () =>
        Object.entries(await countWaiting(db.read)).map(([reason, value]) => ({ labels: { reason }, value })),
    },
    {
      name: 'svc_deposit_addresses_left_ratio',
      help: 'The part of the imported addresses of a family of chains that no deposit has used',
      kind: 'gauge',
      labels: ['family'],
      read: async () =>
        (await addressPools(db.read)).map(({ family, free, total }) => ({ labels: { family }, value: free / total })),
    },
    {
      name: 'svc_deposit_chain_lag_seconds',
      help: 'Age of the newest block of a chain that was read',
      kind: 'gauge',
      labels: ['chain'],
      read: () => ofChains((row) => Math.max(0, clock.now() - (row.head_ms ?? 0)) / 1_000),
    },
    {
      name: 'svc_deposit_chain_paused',
      help: '1 while deposits on a chain are paused, because its node or a contract is not what it should be',
      kind: 'gauge',
      labels: ['chain'],
      read: () => ofChains((row) => (row.paused_reason === null ? 0 : 1)),
    },
    {
      name: 'svc_deposit_accounts_behind',
      help: 'Token accounts of deposits that are read later than their chain: its node gives no answer about them, or they have very many transactions',
      kind: 'gauge',
      labels: ['chain'],
      read: () => ofChains((row, chain) => countBehind(db.read, chain, CHAINS[chain].family, row.final_ms ?? 0)),
    },
  ];
}
