// What a room states so that its events appear in the live stream: who may see them, and how its resources look now.
import type { Caller } from '../http/route.ts';
import type { Scope } from '../http/scopes.ts';
import { join, type Query, type Sql, sql } from '../db/db.ts';

/** One kind of resource. `of` is the first word of its event types: `instance` for `instance.running`. */
export interface Feed {
  of: string;
  /** Only a caller with this scope sees the events. */
  scope: Scope;
  /** True: the events are about a person. That person sees them without the scope. */
  isPersonal?: boolean;
  /** The present public view of each resource with one of these ids. Resources of other organisations are left out. */
  describe(query: Query, orgId: string, ids: readonly string[]): Promise<ReadonlyMap<string, unknown>>;
}

/** The events of an organisation that a caller sees. A family is the first word of an event type. */
export interface Sight {
  /** The families of which the caller sees all events. */
  families: readonly string[];
  /** The families of which the caller sees the events about its own person. */
  ownFamilies: readonly string[];
  /** Undefined for an API key. */
  userId: string | undefined;
}

export function sightOf(feeds: readonly Feed[], { scopes, session }: Caller): Sight {
  const isAllowed = ({ scope }: Feed): boolean => scopes.includes(scope);
  const own = feeds.filter((feed) => feed.isPersonal === true && session !== undefined && !isAllowed(feed));
  return {
    families: feeds.filter(isAllowed).map(({ of }) => of),
    ownFamilies: own.map(({ of }) => of),
    userId: session?.userId,
  };
}

export function isInSight(
  { families, ownFamilies, userId }: Sight,
  { type, subject_id: subjectId }: { type: string; subject_id: string },
): boolean {
  const family = familyOf(type);
  return families.includes(family) || (ownFamilies.includes(family) && subjectId === userId);
}

/** The rule of `isInSight` as an SQL condition on rows of events. */
export function sightCondition({ families, ownFamilies, userId }: Sight): Sql {
  const isOf = (family: string): Sql => sql`type like ${`${family}.%`}`;
  const all = families.map(isOf);
  const own = ownFamilies.map((family) => sql`(${isOf(family)} and subject_id = ${userId ?? ''})`);
  return all.length + own.length === 0 ? sql`1 = 0` : sql`(${join([...all, ...own], ' or ')})`;
}

/** The first word of an event type. */
export function familyOf(type: string): string {
  return type.split('.', 1)[0] ?? '';
}
