// Converts an operation row to its API form.
import { isoTime } from '../../../shared/clock.ts';
import type { Operation } from '../../../shared/api/operation.ts';
import type { OperationRow } from './operations.ts';

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
