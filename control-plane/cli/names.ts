// Finds the id of an instance or a machine that the person has named by its id or by its name.
import { z } from 'zod';
import type { Client } from './client.ts';
import { EXIT, SvcError } from './exit.ts';

type Kind = 'instance' | 'machine';

interface Listed {
  path: string;
  /** The form of an id. */
  id: RegExp;
  /** The member that is the id. */
  key: string;
}

const KINDS: Readonly<Record<Kind, Listed>> = {
  instance: { path: '/instances', id: /^i-[a-z2-7]{20}$/, key: 'id' },
  machine: {
    path: '/community/machines',
    id: /^[\da-f]{8}(-[\da-f]{4}){3}-[\da-f]{12}$/i,
    key: 'machine_id',
  },
};

const Row = z.looseObject({ region: z.string(), status: z.string() });
const Page = z.looseObject({ data: z.array(Row), next_cursor: z.string().nullable() });
type Named = z.infer<typeof Row> & { id: string };

/** A machine has none of these. */
const ENDED: ReadonlySet<string> = new Set(['terminated', 'stopped']);
/** An instance that has failed, and a machine that was taken out of supply. */
const ASIDE: ReadonlySet<string> = new Set(['error', 'delisted']);

/** What the argument of a path is: an instance, a machine, or neither. */
export function kindIn(path: string): Kind | undefined {
  if (path.startsWith(`${KINDS.instance.path}/{`)) return 'instance';
  return path.startsWith(`${KINDS.machine.path}/{`) ? 'machine' : undefined;
}

/**
 * The id of what has this id or name. An instance that has neither ended nor failed comes before the others of its name, and so does a machine that
 * is not delisted. Without one, a command that only reads takes the newest of the others. Any other command takes an instance that has failed, which
 * still has to be deleted, or a delisted machine, which can be listed again. @throws SvcError if none or several have it
 */
export async function resolveName(
  client: Client,
  text: string,
  { kind = 'instance', isRead }: { kind?: Kind; isRead: boolean },
): Promise<string> {
  if (KINDS[kind].id.test(text)) return text;
  const named = await namedRows(client, text, KINDS[kind]);
  const open = named.filter(({ status }) => !ENDED.has(status));
  const live = open.filter(({ status }) => !ASIDE.has(status));
  const others = isRead ? named.slice(0, 1) : open;
  const wanted = live.length > 0 ? live : others;
  const [one] = wanted;
  if (one === undefined) throw unknown(text, kind, named.length > 0);
  if (wanted.length === 1) return one.id;
  throw new SvcError(EXIT.failed, {
    code: 'ambiguous_name',
    message: `${wanted.length} ${kind}s have the name ${text}`,
    next: `Name one by its id: ${wanted.map(({ id, region, status }) => `${id} (${region}, ${status})`).join(', ')}`,
  });
}

/** All that have this name, the newest first. */
async function namedRows(client: Client, name: string, { path, key }: Listed): Promise<Named[]> {
  const found: Named[] = [];
  for (let cursor: string | null = ''; cursor !== null;) {
    const after: string = cursor === '' ? '' : `&cursor=${encodeURIComponent(cursor)}`;
    const page: z.infer<typeof Page> = Page.parse(
      await client.json({ method: 'GET', path: `${path}?limit=200&name=${encodeURIComponent(name)}${after}` }),
    );
    for (const row of page.data) found.push({ ...row, id: z.string().parse(row[key]) });
    cursor = page.next_cursor;
  }
  return found;
}

/** `isNamed`: what has the name has ended. */
function unknown(text: string, kind: Kind, isNamed: boolean): SvcError {
  const these = isNamed ? ` --name ${/^[\w.-]+$/.test(text) ? text : JSON.stringify(text)}` : '';
  return new SvcError(EXIT.notFound, {
    code: 'not_found',
    message: `no ${kind}${isNamed ? ' that has not ended' : ''} has the id or name ${text}`,
    next: `List them: svc ${kind} list${these}`,
  });
}
