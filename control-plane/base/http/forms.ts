// Forms: multipart/form-data bodies of texts, for routes whose clients send one in place of JSON.
import { Readable } from 'node:stream';
import { finished } from 'node:stream/promises';
import type { FastifyInstance, FastifyRequest } from 'fastify';
import { failField } from '../../../shared/errors.ts';
import { readForm } from './multipart.ts';
import { unsupportedMediaType } from './problems.ts';

declare module 'fastify' {
  interface FastifyContextConfig {
    takesForm?: boolean;
  }
}

type Fields = Record<string, string | null>;

const FORM = 'multipart/form-data';
/** A file is no text: whatever rule its field has, this breaks it, and the refusal names the field. */
const FILE = null;

/** Routes that say so take forms; on all others one is refused as anything else is that is no JSON. */
export function takeForms(app: FastifyInstance): void {
  app.addContentTypeParser(FORM, { parseAs: 'buffer' }, async (request: FastifyRequest, body: Buffer) => {
    if (request.routeOptions.config.takesForm !== true) throw unsupportedMediaType();
    return readFields(request.headers['content-type'] ?? '', body);
  });
}

/** Whether the body has come as one. */
export function isForm({ headers }: FastifyRequest): boolean {
  return headers['content-type']?.toLowerCase().startsWith(FORM) === true;
}

async function readFields(contentType: string, body: Buffer): Promise<Fields> {
  const fields = new Map<string, string | null>();
  const add = (name: string, value: string | null): void => {
    if (fields.has(name)) failField(name, 'must be sent once');
    fields.set(name, value);
  };
  const stream = Readable.from([body], { objectMode: false });
  await readForm(
    { contentType, bytes: body.length, stream },
    {
      field: add,
      file: async ({ name, stream: file }) => {
        add(name, FILE);
        await finished(file.resume());
      },
    },
  );
  return Object.fromEntries(fields);
}
