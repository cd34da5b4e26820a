// What a room states so that its events are in the live stream: who may see them, and how its resources look now.
import type { Scope } from '../http/scopes.ts';
import type { Query } from '../db/db.ts';

/** One kind of resource. `of` is the first word of its event types: `instance` for `instance.running`. */
export interface Feed {
  of: string;
  /** Only a key with this scope sees the events. */
  scope: Scope;
  /** The public view of each of these resources as it is now. Resources of other organisations are left out. */
  describe(query: Query, orgId: string, ids: readonly string[]): Promise<ReadonlyMap<string, unknown>>;
}

/** The first word of an event type. */
export function familyOf(type: string): string {
  return type.split('.', 1)[0] ?? '';
}
