// GET /v1/community/machines/{id}/probes: how many of our logins at the rentals of a machine succeeded in the last day.
import { MachineProbes } from '../../../shared/api/community.ts';
import { type Clock, isoTime } from '../../../shared/clock.ts';
import type { Db } from '../../base/db/db.ts';
import { type Route, route } from '../../base/http/route.ts';
import { ownMachine } from '../../fleet/supply/listing.ts';
import { MachineId, tag } from '../../fleet/supply/machine-view.ts';
import { hoursOf } from './probe-hours.ts';

const DAY_MS = 86_400_000;

export function machineProbesRoute({ db, clock }: { db: Db; clock: Clock }): Route {
  return route({
    method: 'GET',
    path: '/v1/community/machines/{id}/probes',
    operationId: 'listMachineProbes',
    tag,
    summary: 'Show the SSH probes of a machine in the last day, by hour',
    description:
      'While a machine is rented, this service logs in to the SSH server of each rental from outside, about every 30 seconds. While a login fails, logins are more frequent, but only one login in 20 seconds counts. The counts may be up to ten minutes old. An hour without a rental is not listed.',
    scope: 'supply:read',
    idempotency: 'none',
    params: MachineId,
    responses: { 200: { description: 'The counts', schema: MachineProbes } },
    errors: ['not_found'],
    handler: async ({ caller, params }) => {
      const machine = await ownMachine(db.read, caller.orgId, params.id);
      const untilMs = clock.now();
      const hours = await hoursOf(db.read, machine.id, untilMs - DAY_MS);
      const body: MachineProbes = {
        machine_id: machine.id,
        good: hours.reduce((sum, hour) => sum + hour.good, 0),
        failed: hours.reduce((sum, hour) => sum + hour.failed, 0),
        hours: hours.map((hour) => ({ hour: isoTime(hour.hour_ms), good: hour.good, failed: hour.failed })),
      };
      return { status: 200, body };
    },
  });
}
