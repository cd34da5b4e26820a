// Operations: created with a request, moved by the room that carries it out, read by the API key that sent it.
import { z } from 'zod';
import { type Clock, isoTime } from '../../../shared/clock.ts';
import type { ErrorCode } from '../../../shared/errors.ts';
import type { Ids } from '../../../shared/ids.ts';
import { mayMove, OPERATION_STATES, type OperationState } from '../../../shared/states.ts';
import { int, json, text } from '../db/columns.ts';
import { type Query, type Sql, type Tx, join, sql } from '../db/db.ts';
import type { Operation } from '../../../shared/api/operation.ts';

export type OperationKind = 'instance.create' | 'instance.delete';

const OperationRow = z.object({
  id: text,
  kind: z.enum(['instance.create', 'instance.delete']),
  state: z.enum(['pending', 'in_progress', 'succeeded', 'failed', 'cancelled']),
  org_id: text,
  api_key_id: text,
  resource_id: text.nullable(),
  error_code: text.nullable(),
  error_detail: text.nullable(),
  /** The current activity for people, such as downloaded bytes of an image. */
  progress: text.nullable(),
  /** Warnings that the caller got when the request was accepted. */
  warnings: json(z.array(z.string())),
  created_ms: int,
  updated_ms: int,
  completed_ms: int.nullable(),
});
export type OperationRow = z.infer<typeof OperationRow>;

export interface NewOperation {
  kind: OperationKind;
  orgId: string;
  principalId: string;
  warnings?: string[];
}

export interface OperationPatch {
  resourceId?: string;
  error?: { code: ErrorCode; detail: string };
}

export interface OnResource {
  kind: OperationKind;
  resourceId: string;
}

export interface Operations {
  /** A `pending` operation without its resource, which it gets once work has begun (specification 2.6). `insert` stores it. */
  make(operation: NewOperation): OperationRow;
  insert(tx: Tx, row: OperationRow): Promise<void>;
  /** Moves an operation that is still open. A completed one stays unchanged, so the first outcome counts. */
  move(tx: Tx, id: string, to: Exclude<OperationState, 'pending'>, patch?: OperationPatch): Promise<void>;
  /** Moves all open operations of the kind on the resource, of every API key. */
  moveAll(tx: Tx, on: OnResource, to: Exclude<OperationState, 'pending'>): Promise<void>;
  setProgress(tx: Tx, id: string, progress: string): Promise<void>;
  /** Undefined also for operations of other keys (specification 2.6). */
  find(query: Query, id: string, principalId: string): Promise<OperationRow | undefined>;
  /** The open operation of the kind that this key has on the resource. */
  findOn(query: Query, on: OnResource, principalId: string): Promise<OperationRow | undefined>;
}

const COLUMNS = sql`id, kind, state, org_id, api_key_id, resource_id, error_code, error_detail, progress, warnings, created_ms, updated_ms, completed_ms`;

export function openOperations(deps: { clock: Clock; ids: Ids }): Operations {
  const { clock, ids } = deps;
  return {
    make: (operation) => {
      const now = clock.now();
      return {
        id: ids.uuid(),
        kind: operation.kind,
        state: 'pending',
        org_id: operation.orgId,
        api_key_id: operation.principalId,
        resource_id: null,
        error_code: null,
        error_detail: null,
        progress: null,
        warnings: operation.warnings ?? [],
        created_ms: now,
        updated_ms: now,
        completed_ms: null,
      };
    },
    insert: async (tx, row) => {
      await tx.run(
        sql`insert into operations (${COLUMNS}) values (${row.id}, ${row.kind}, ${row.state}, ${row.org_id}, ${row.api_key_id},
            null, null, null, null, ${JSON.stringify(row.warnings)}, ${row.created_ms}, ${row.updated_ms}, null)`,
      );
    },
    move: (tx, id, to, patch = {}) => moveWhere(tx, sql`id = ${id}`, to, { ...patch, nowMs: clock.now() }),
    moveAll: (tx, on, to) => moveWhere(tx, isOpenOn(on), to, { nowMs: clock.now() }),
    setProgress: async (tx, id, progress) => {
      await tx.run(
        sql`update operations set progress = ${progress}, updated_ms = ${clock.now()} where id = ${id} and completed_ms is null`,
      );
    },
    find: (query, id, principalId) =>
      query.one(OperationRow, sql`select ${COLUMNS} from operations where id = ${id} and api_key_id = ${principalId}`),
    findOn: (query, on, principalId) =>
      query.one(
        OperationRow,
        sql`select ${COLUMNS} from operations where ${isOpenOn(on)} and api_key_id = ${principalId}`,
      ),
  };
}

export function operationView(row: OperationRow): Operation {
  const { error_code: code, error_detail: detail, completed_ms: completedMs } = row;
  return {
    operation_id: row.id,
    kind: row.kind,
    state: row.state,
    resource_id: row.resource_id,
    created_at: isoTime(row.created_ms),
    updated_at: isoTime(row.updated_ms),
    completed_at: completedMs === null ? null : isoTime(completedMs),
    ...(row.state === 'failed' && code !== null ? { error: { code, detail: detail ?? '' } } : {}),
    ...(row.warnings.length === 0 ? {} : { warnings: row.warnings }),
    ...(completedMs === null && row.progress !== null ? { progress: row.progress } : {}),
  };
}

/** A condition: the operation is of this kind on this resource, and still open. */
function isOpenOn({ kind, resourceId }: OnResource): Sql {
  return sql`resource_id = ${resourceId} and kind = ${kind} and completed_ms is null`;
}

async function moveWhere(
  tx: Tx,
  which: Sql,
  to: Exclude<OperationState, 'pending'>,
  { nowMs, resourceId, error }: OperationPatch & { nowMs: number },
): Promise<void> {
  const completedMs = OPERATION_STATES[to].length === 0 ? nowMs : null;
  await tx.run(
    sql`update operations set state = ${to}, updated_ms = ${nowMs}, completed_ms = ${completedMs},
          resource_id = coalesce(${resourceId ?? null}, resource_id),
          error_code = ${error?.code ?? null}, error_detail = ${error?.detail ?? null}
        where ${which} and state in (${join(statesBefore(to))})`,
  );
}

function statesBefore(to: OperationState): OperationState[] {
  const states = Object.keys(OPERATION_STATES) as OperationState[];
  return states.filter((from) => mayMove(OPERATION_STATES, from, to));
}
