// Forms: multipart/form-data bodies with text fields only, for routes whose clients send a form instead of JSON.
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
/** The value of a file in a form. No schema accepts it, so the refusal names the field. */
const FILE = null;

/** Routes with `takesForm` accept forms. Other routes refuse a form like any other body that is not JSON. */
export function takeForms(app: FastifyInstance): void {
  app.addContentTypeParser(FORM, { parseAs: 'buffer' }, async (request: FastifyRequest, body: Buffer) => {
    if (request.routeOptions.config.takesForm !== true) throw unsupportedMediaType();
    return readFields(request.headers['content-type'] ?? '', body);
  });
}

/** Whether the body was sent as a form. */
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
