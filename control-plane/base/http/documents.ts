// The OpenAPI document and the page that shows it. Each text is made at its first request and kept, because making it takes longer than hundreds
// of other requests, and everybody may ask for it.
import { docsReply } from './docs-page.ts';
import type { Reply } from './route.ts';

export interface Documents {
  openapi: object;
  json(): Reply;
  page(): Reply;
}

export function openDocuments(openapi: object): Documents {
  let json: Reply | undefined;
  let page: Reply | undefined;
  return {
    openapi,
    json: () => (json ??= { status: 200, headers: JSON_HEADERS, body: JSON.stringify(openapi) }),
    page: () => (page ??= docsReply(openapi)),
  };
}

const JSON_HEADERS = { 'content-type': 'application/json; charset=utf-8' };
