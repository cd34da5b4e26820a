// What this room brings to the house.
import type { Clock } from '../../../shared/clock.ts';
import type { Db } from '../../base/db/db.ts';
import { type Forgets, inPieces, type Piece } from '../../base/db/pieces.ts';
import type { Cursors } from '../../base/http/cursors.ts';
import { type Measure, one } from '../../base/http/metrics.ts';
import type { OverviewServer } from '../../../shared/api/overview.ts';
import type { Billed } from '../../money/ledger/wallets.ts';
import type { Gateway } from './gateway.ts';
import { upstreamsRoute, gatewayRoutes } from './routes.ts';
import { receiptRoutes } from './receipt-routes.ts';
import { CHARGE_KIND } from './states.ts';
import { removeClosed, rememberForgotten } from './store.ts';
import { sumReceipts } from './totals.ts';
import { totalsRoute } from './totals-route.ts';
import { receiptTotals } from './totals-store.ts';
import { receiptHoldFaults, receiptProof } from './verify.ts';

/** Receipts of a dead process are swept at the start. The later runs are for receipts whose close has failed. */
const SWEEP_PERIOD_MS = 15_000;
/** Resting servers get a health check every five seconds, or more often while they load their model. */
const SERVERS_PERIOD_MS = 1_000;
/** A receipt is in the totals a few minutes after its request. */
const TOTALS_PERIOD_MS = 60_000;
/** How long open answers may go on at shutdown. The sockets close a few seconds later, so that callers still receive the error. */
const ANSWERS_GRACE_MS = 5_000;

interface Deps {
  db: Db;
  clock: Clock;
  cursors: Cursors;
  gateway: Gateway;
  /** How long a closed receipt is kept. */
  keepMs: number;
}

export function gatewayBrings({ db, clock, cursors, gateway, keepMs }: Deps) {
  const loops = [
    {
      name: 'receipts',
      periodMs: SWEEP_PERIOD_MS,
      run: async (signal: AbortSignal) => void (await gateway.sweep(signal)),
    },
    {
      name: 'receipt-totals',
      periodMs: TOTALS_PERIOD_MS,
      run: async (signal: AbortSignal) => ((await sumReceipts({ db, clock }, signal)) ? ('again' as const) : undefined),
    },
    { name: 'model-servers', periodMs: SERVERS_PERIOD_MS, run: gateway.checkServers, everywhere: true },
  ];
  const forgets: Forgets = {
    what: 'receipts',
    run: async (signal) => {
      // What is not in the totals yet must stay.
      await sumReceipts({ db, clock }, signal);
      return inPieces(clock.now() - keepMs, (piece) => forgetReceipts(db, piece), signal);
    },
  };
  return {
    routes: [...gatewayRoutes({ gateway }), totalsRoute({ db, clock, cursors }), ...receiptRoutes({ db, cursors })],
    operatorRoutes: [upstreamsRoute(gateway)],
    loops,
    measures: measures(gateway),
    servers: [() => serverStates(gateway)],
    charges: receiptProof,
    billed: { [CHARGE_KIND]: { section: 'inference', by: 'model' } } satisfies Billed,
    invariants: [receiptHoldFaults],
    forgets: [forgets],
    finish: () => gateway.drain(ANSWERS_GRACE_MS),
    close: () => gateway.close(),
  };
}

/** The servers that this process has asked or checked since its start, as it sees them. */
function serverStates(gateway: Gateway): OverviewServer[] {
  return gateway.servers().map(({ upstream, model, isOut }) => ({
    model,
    server: upstream,
    is_well: !isOut,
    state: isOut ? 'fails, and is sent no requests' : 'answers',
  }));
}

function measures(gateway: Gateway): Measure[] {
  return [
    {
      name: 'svc_inference_open_requests',
      help: 'Requests to models that are being answered',
      kind: 'gauge',
      everywhere: true,
      read: () => one(gateway.openRequests()),
    },
    {
      name: 'svc_inference_upstream_out',
      help: '1 while a model server is sent no requests because it fails, 0 for others that were asked',
      kind: 'gauge',
      everywhere: true,
      labels: ['upstream', 'upstream_model'],
      read: () =>
        gateway.servers().map(({ upstream, model, isOut }) => ({
          labels: { upstream, upstream_model: model },
          value: isOut ? 1 : 0,
        })),
    },
    {
      name: 'svc_inference_requests_total',
      help: 'Requests to models by how they ended',
      kind: 'counter',
      everywhere: true,
      labels: ['model', 'ending'],
      read: () =>
        gateway.counts.endings().map(({ model, ending, count }) => ({ labels: { model, ending }, value: count })),
    },
    {
      name: 'svc_inference_upstream_failures_total',
      help: 'Requests that a model server refused or failed to answer',
      kind: 'counter',
      everywhere: true,
      labels: ['upstream'],
      read: () => gateway.counts.failures().map(({ upstream, count }) => ({ labels: { upstream }, value: count })),
    },
    {
      name: 'svc_inference_beyond_context_total',
      help: 'Answers that used more context than the catalog states for their model',
      kind: 'counter',
      everywhere: true,
      labels: ['model'],
      read: () => gateway.counts.beyondContexts().map(({ model, count }) => ({ labels: { model }, value: count })),
    },
  ];
}

/**
 * Removes old receipts, but no open ones, and none that is not in the totals yet. The sum of their charges is kept, because the ledger keeps its
 * transfers.
 */
export function forgetReceipts(db: Db, piece: Piece): Promise<number> {
  return db.tx('receipts.forget', async (tx) => {
    const removed = await removeClosed(tx, await receiptTotals.position(tx), piece);
    const ucents = removed.reduce((sum, each) => sum + each.charged_ucents, 0n);
    if (removed.length > 0) await rememberForgotten(tx, { receipts: removed.length, ucents });
    return removed.length;
  });
}
