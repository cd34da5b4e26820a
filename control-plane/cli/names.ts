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
  /** What a name is looked for among. */
  among: string;
}

const KINDS: Readonly<Record<Kind, Listed>> = {
  instance: { path: '/instances', id: /^i-[a-z2-7]{20}$/, key: 'id', among: 'instance that has not ended' },
  machine: {
    path: '/community/machines',
    id: /^[\da-f]{8}(-[\da-f]{4}){3}-[\da-f]{12}$/i,
    key: 'machine_id',
    among: 'machine',
  },
};

const Page = z.looseObject({
  data: z.array(z.record(z.string(), z.unknown())),
  next_cursor: z.string().nullable(),
});

/** What the argument of a path is: an instance, a machine, or neither. */
export function kindIn(path: string): Kind | undefined {
  if (path.startsWith(`${KINDS.instance.path}/{`)) return 'instance';
  return path.startsWith(`${KINDS.machine.path}/{`) ? 'machine' : undefined;
}

/** The id of what has this id or name. The name of an instance that has ended does not count. @throws SvcError if none or several have it */
export async function resolveName(client: Client, text: string, kind: Kind = 'instance'): Promise<string> {
  const { path, id: form, key, among } = KINDS[kind];
  if (form.test(text)) return text;
  const name = encodeURIComponent(text);
  const found: string[] = [];
  for (let cursor: string | null = ''; cursor !== null;) {
    const after: string = cursor === '' ? '' : `&cursor=${encodeURIComponent(cursor)}`;
    const page: z.infer<typeof Page> = Page.parse(
      await client.json({ method: 'GET', path: `${path}?limit=200&name=${name}${after}` }),
    );
    // A machine has neither status.
    for (const row of page.data)
      if (row['status'] !== 'terminated' && row['status'] !== 'stopped') found.push(z.string().parse(row[key]));
    cursor = page.next_cursor;
  }
  const [id, ...others] = found;
  if (id !== undefined && others.length === 0) return id;
  if (id === undefined)
    throw new SvcError(EXIT.notFound, {
      code: 'not_found',
      message: `no ${among} has the id or name ${text}`,
      next: `List them: svc ${kind} list`,
    });
  throw new SvcError(EXIT.failed, {
    code: 'ambiguous_name',
    message: `${found.length} ${kind}s have the name ${text}`,
    next: `Name one by its id: ${found.join(', ')}`,
  });
}
