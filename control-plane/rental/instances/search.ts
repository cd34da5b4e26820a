// The lists of instances: those of an organisation, and the operator's search among those of all organisations.
import { INSTANCE_STATES, type InstanceState } from '../../../shared/states.ts';
import { join, type Query, type Sql, sql } from '../../base/db/db.ts';
import { pageFrom, type PageStart } from '../../base/http/cursors.ts';
import { COLUMNS, IS_CONNECTABLE, RentalRow, SHOWN, type ShownInstance, ShownRow } from './store.ts';

/** A filter that is undefined leaves none out. */
export interface InstancesPage extends PageStart {
  /** Only instances with exactly this name. */
  name?: string | undefined;
  /** Only instances with this status. `live`: those that have GPUs or wait for them. */
  status?: InstanceState | 'live' | undefined;
}

/** A page of the instances of an organisation, newest first. */
export function instancesOfOrg(
  query: Query,
  orgId: string,
  { name, status, ...start }: InstancesPage,
): Promise<ShownInstance[]> {
  const conditions = [
    status === undefined ? sql`org_id = ${orgId}` : hasStatus(orgId, status),
    ...(name === undefined ? [] : [sql`name = ${name}`]),
    pageFrom(start),
  ];
  return query.all(ShownRow, sql`select ${SHOWN} from instances where ${join(conditions, ' and ')}`);
}

/** Must equal the condition of the index `instances_open_launches`. */
const IS_LAUNCHING = sql`status in ('allocating', 'starting')`;

/**
 * Whether an instance is of the organisation and has the status. If it has not ended, its id comes from an index of those that have not: SQLite would
 * otherwise read all instances of the organisation, because these are in the order of the page.
 */
function hasStatus(orgId: string, status: InstanceState | 'live'): Sql {
  const among = (condition: Sql): Sql => sql`select id from instances where org_id = ${orgId} and ${condition}`;
  const idIn = (...conditions: Sql[]): Sql => sql`id in (${join(conditions.map(among), ' union all ')})`;
  switch (status) {
    case 'live':
      return idIn(IS_LAUNCHING, IS_CONNECTABLE, sql`status <> 'terminated' and status = 'stopping'`);
    case 'allocating':
    case 'starting':
      return idIn(sql`${IS_LAUNCHING} and status = ${status}`);
    case 'running':
    case 'unreachable':
      return idIn(sql`${IS_CONNECTABLE} and status = ${status}`);
    default:
      return sql`org_id = ${orgId} and status = ${status}`;
  }
}

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
