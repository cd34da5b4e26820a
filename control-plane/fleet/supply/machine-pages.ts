// The SQL of the lists of machines, in pages, newest first.
import type { CommunityMachine } from '../../../shared/api/community.ts';
import { join, type Query, type Sql, sql } from '../../base/db/db.ts';
import { pageFrom, type PageStart } from '../../base/http/cursors.ts';
import { isFound } from '../../base/http/operator.ts';
import { MACHINE, MachineRow } from './store.ts';

/** Which machines of a supplier are listed. A filter that is undefined leaves none out. */
export interface MachineFilters {
  name?: string | undefined;
  status?: CommunityMachine['status'] | undefined;
}

export function machinesOfSupplier(
  query: Query,
  supplierId: string,
  { name, status, ...start }: PageStart & MachineFilters,
): Promise<MachineRow[]> {
  const conditions = [
    sql`supplier_id = ${supplierId}`,
    ...(name === undefined ? [] : [sql`name = ${name}`]),
    ...(status === undefined ? [] : [hasStatus(status)]),
  ];
  return page(query, join(conditions, ' and '), start);
}

/** The machines of all suppliers. `search`: a part of the name, of the id, or of the supplier's id. */
export function pageOfMachines(query: Query, start: PageStart, search?: string): Promise<MachineRow[]> {
  return page(query, isFound(search, [sql`name`, sql`id`, sql`supplier_id`]), start);
}

/** A machine that drains is shown as delisted. */
function hasStatus(status: CommunityMachine['status']): Sql {
  return status === 'delisted' ? sql`status in ('draining', 'delisted')` : sql`status = ${status}`;
}

function page(query: Query, which: Sql, start: PageStart): Promise<MachineRow[]> {
  return query.all(MachineRow, sql`select ${MACHINE} from machines where ${which} and ${pageFrom(start)}`);
}
