// Finds the id of an instance that the person has named by its id or by its name.
import { z } from 'zod';
import type { Client } from './client.ts';
import { EXIT, SvcError } from './exit.ts';

const INSTANCE_ID = /^i-[a-z2-7]{20}$/;
const Page = z.looseObject({
  data: z.array(z.looseObject({ id: z.string(), status: z.string() })),
  next_cursor: z.string().nullable(),
});

/** The id of an instance. A name counts for instances that have not ended. @throws SvcError if none or several have it */
export async function resolveName(client: Client, text: string): Promise<string> {
  if (INSTANCE_ID.test(text)) return text;
  const name = encodeURIComponent(text);
  const found: string[] = [];
  for (let cursor: string | null = ''; cursor !== null;) {
    const after: string = cursor === '' ? '' : `&cursor=${encodeURIComponent(cursor)}`;
    const page: z.infer<typeof Page> = Page.parse(
      await client.json({ method: 'GET', path: `/instances?limit=200&name=${name}${after}` }),
    );
    for (const { id, status } of page.data) if (status !== 'terminated' && status !== 'stopped') found.push(id);
    cursor = page.next_cursor;
  }
  const [id, ...others] = found;
  if (id !== undefined && others.length === 0) return id;
  if (id === undefined)
    throw new SvcError(EXIT.notFound, {
      code: 'not_found',
      message: `no instance that has not ended has the id or name ${text}`,
      next: 'List them: svc instance list',
    });
  throw new SvcError(EXIT.failed, {
    code: 'ambiguous_name',
    message: `${found.length} instances have the name ${text}`,
    next: `Name one by its id: ${found.join(', ')}`,
  });
}
