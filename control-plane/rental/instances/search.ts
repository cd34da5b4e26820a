// The operator's search among the instances of all organisations.
import { INSTANCE_STATES, type InstanceState } from '../../../shared/states.ts';
import { join, type Query, sql } from '../../base/db/db.ts';
import { pageFrom, type PageStart } from '../../base/http/cursors.ts';
import { COLUMNS, RentalRow } from './store.ts';

/** Search criteria of the operator; null: any. Without a status, instances that have not ended. */
export interface InstanceFilter {
  orgId: string | null;
  machineId: string | null;
  status: InstanceState | 'any' | null;
}

/** Without a status, the operator sees instances of these. There is an index of them. */
const SHOWN_STATES = Object.keys(INSTANCE_STATES).filter((state) => state !== 'terminated' && state !== 'stopped');

/** A page of the instances of all organisations, newest first. */
export function findInstances(
  query: Query,
  { orgId, machineId, status }: InstanceFilter,
  start: PageStart,
): Promise<RentalRow[]> {
  const conditions = [sql`1 = 1`];
  if (orgId !== null) conditions.push(sql`org_id = ${orgId}`);
  if (machineId !== null) conditions.push(sql`machine_id = ${machineId}`);
  const isPlain = orgId === null && machineId === null && status !== 'any' && status !== 'terminated';
  if (isPlain) return pageOfStates(query, status === null ? SHOWN_STATES : [status], start);
  if (status === null) conditions.push(sql`status in (${join(SHOWN_STATES)})`);
  else if (status !== 'any') conditions.push(sql`status = ${status}`);
  conditions.push(pageFrom(start));
  return query.all(RentalRow, sql`select ${COLUMNS} from instances where ${join(conditions, ' and ')}`);
}

/** A page of the instances of these states. Each state is a part of the index, so the page is the first rows of the pages of all states. */
function pageOfStates(query: Query, states: readonly string[], start: PageStart): Promise<RentalRow[]> {
  const pages = states.map(
    (state) =>
      sql`select * from (select ${COLUMNS} from instances
            where status <> 'terminated' and status = ${state} and ${pageFrom(start)}) as page`,
  );
  return query.all(
    RentalRow,
    sql`select ${COLUMNS} from (${join(pages, ' union all ')}) as pages where ${pageFrom(start)}`,
  );
}
