// The operator's routes for emergencies: what they pause stays so, in all control planes, until it is resumed.
import { z } from 'zod';
import { type Clock, isoTime } from '../../shared/clock.ts';
import { fail } from '../../shared/errors.ts';
import type { Db } from '../base/db/db.ts';
import { allPauses, PAUSABLE, type Pausable, pause, pauseOf, resume } from '../base/db/pauses.ts';
import type { Measure } from '../base/http/metrics.ts';
import { AnyFields, type Fields, Id, operator } from '../base/http/operator.ts';
import { type Route, route } from '../base/http/route.ts';

interface PauseDeps {
  db: Db;
  clock: Clock;
}

const shown = { description: 'Whether it is paused, and since when, by whom and why', schema: AnyFields };

export function pauseRoutes({ db, clock }: PauseDeps): Route[] {
  return [
    route({
      ...operator,
      method: 'POST',
      path: '/admin/pauses/{id}',
      operationId: 'adminPause',
      summary:
        'Pause `launches` or `payouts` in all control planes at once. A second request keeps the begin and takes the new reason',
      params: Id,
      body: z.strictObject({ reason: z.string().min(1).max(500) }),
      responses: { 200: shown },
      errors: ['not_found'],
      handler: async ({ params, body: { reason }, actor }) => {
        const what = pausable(params.id);
        await db.tx('admin.pause', (tx) => pause(tx, { what, since_ms: clock.now(), actor, reason }));
        return { status: 200, body: await show(db, what) };
      },
    }),
    route({
      ...operator,
      method: 'POST',
      path: '/admin/pauses/{id}/resume',
      operationId: 'adminResume',
      summary: 'End the pause of `launches` or `payouts`. It has no effect if nothing is paused',
      params: Id,
      responses: { 200: shown },
      errors: ['not_found'],
      handler: async ({ params }) => {
        const what = pausable(params.id);
        await db.tx('admin.resume', (tx) => resume(tx, what));
        return { status: 200, body: await show(db, what) };
      },
    }),
  ];
}

/** The row is in the database, so only the primary tells it. */
export function pauseMeasure(db: Db): Measure {
  return {
    name: 'svc_paused_since_timestamp_seconds',
    help: 'Since when an operator has paused what; there is no sample of what goes on',
    kind: 'gauge',
    labels: ['what'],
    read: async () =>
      (await allPauses(db.read)).map(({ what, since_ms: sinceMs }) => ({ labels: { what }, value: sinceMs / 1000 })),
  };
}

function pausable(id: string): Pausable {
  return (
    PAUSABLE.find((each) => each === id) ??
    fail('not_found', `There is no ${id} to pause. Choose ${PAUSABLE.join(' or ')}.`)
  );
}

async function show(db: Db, what: Pausable): Promise<Fields> {
  const found = await pauseOf(db.read, what);
  if (found === undefined) return { id: what, paused: false };
  return { id: what, paused: true, since: isoTime(found.since_ms), by: found.actor, reason: found.reason };
}
