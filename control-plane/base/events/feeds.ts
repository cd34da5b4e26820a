// What a room states so that its events are in the live stream: who may see them, and how its resources look now.
import type { Caller } from '../http/route.ts';
import type { Scope } from '../http/scopes.ts';
import { join, type Query, type Sql, sql } from '../db/db.ts';

/** One kind of resource. `of` is the first word of its event types: `instance` for `instance.running`. */
export interface Feed {
  of: string;
  /** Only a caller with this scope sees the events. */
  scope: Scope;
  /** The events are about a person, who sees its own ones without the scope. */
  isPersonal?: boolean;
  /** The public view of each of these resources as it is now. Resources of other organisations are left out. */
  describe(query: Query, orgId: string, ids: readonly string[]): Promise<ReadonlyMap<string, unknown>>;
}

/** What a caller sees of the events of its organisation. */
export interface Sight {
  /** The families of which it sees all events. */
  families: readonly string[];
  /** The families of which it sees the events about its own person. */
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

/** The same as a condition on the rows of events. */
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
