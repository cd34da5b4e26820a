// The text of a statement as tests look at it.
import type { Sql } from '../../control-plane/base/db/db.ts';

/** Values stand as `?`. */
export function textOf({ strings }: Sql): string {
  return strings.join('?');
}
