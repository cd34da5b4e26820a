// Forms: multipart/form-data bodies of texts, for routes whose clients send one in place of JSON.
import type { FastifyInstance, FastifyRequest } from 'fastify';
import { fail, failField } from '../../../shared/errors.ts';
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
    return readForm(request.headers['content-type'] ?? '', body);
  });
}

/** Whether the body has come as one. */
export function isForm({ headers }: FastifyRequest): boolean {
  return headers['content-type']?.toLowerCase().startsWith(FORM) === true;
}

async function readForm(contentType: string, body: Buffer): Promise<Fields> {
  const answer = new Response(new Uint8Array(body), { headers: { 'content-type': contentType } });
  const form = await answer.formData().catch((cause: unknown) =>
    fail('invalid_request', {
      detail: 'The body is not the form that its Content-Type says. Send multipart/form-data with its boundary.',
      cause,
    }),
  );
  const fields = new Map<string, string | null>();
  for (const [name, value] of form) {
    if (fields.has(name)) failField(name, 'must be sent once');
    fields.set(name, typeof value === 'string' ? value : FILE);
  }
  return Object.fromEntries(fields);
}
