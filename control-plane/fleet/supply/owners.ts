// The organisation to which a machine belongs. It reads the machine's events and sees the machine in the live stream.
import { z } from 'zod';
import type { CommunitySupplier } from '../../../shared/api/community.ts';
import { isoTime } from '../../../shared/clock.ts';
import { text } from '../../base/db/columns.ts';
import { type Query, sql } from '../../base/db/db.ts';
import type { Feed } from '../../base/events/events.ts';
import { machineViews, type ViewDeps } from './machine-view.ts';
import { findMachine, supplierOfOrg, type SupplierRow } from './store.ts';

const OwnerRow = z.object({ org_id: text });

/** The organisation of the supplier; null for an unknown machine. */
export async function orgOfMachine(query: Query, machineId: string): Promise<string | null> {
  const row = await query.one(
    OwnerRow,
    sql`select s.org_id from machines m join suppliers s on s.id = m.supplier_id where m.id = ${machineId}`,
  );
  return row?.org_id ?? null;
}

/** The supplier of an organisation in the live stream. */
export const SUPPLIER_FEED: Feed = {
  of: 'supplier',
  scope: 'supply:read',
  describe: async (query, orgId, ids) => {
    const supplier = await supplierOfOrg(query, orgId);
    return new Map(supplier !== undefined && ids.includes(supplier.id) ? [[supplier.id, supplierView(supplier)]] : []);
  },
};

/** The machines of an organisation in the live stream, as their supplier sees them. */
export function machineFeed(view: ViewDeps): Feed {
  return {
    of: 'machine',
    scope: 'supply:read',
    describe: async (query, orgId, ids) => {
      const supplier = await supplierOfOrg(query, orgId);
      const found = await Promise.all(ids.map((id) => findMachine(query, id)));
      const own = found.flatMap((row) => (row !== undefined && row.supplier_id === supplier?.id ? [row] : []));
      return new Map((await machineViews(query, own, view)).map((shown) => [shown.machine_id, shown]));
    },
  };
}

export function supplierView(row: SupplierRow): CommunitySupplier {
  return {
    supplier_id: row.id,
    org_id: row.org_id,
    status: row.status,
    created_at: isoTime(row.created_ms),
    updated_at: isoTime(row.updated_ms),
  };
}
