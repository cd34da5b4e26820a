// GET /docs/api: the OpenAPI document as one page for people. The page has no script and loads nothing, so its content policy forbids both.
import { createHash } from 'node:crypto';
import { z } from 'zod';
import { fieldRow, readSchema, schemaHtml } from './docs-schema.ts';
import { code, escapeHtml, prose } from './docs-text.ts';
import type { Reply } from './route.ts';

const Content = z.record(z.string(), z.looseObject({ schema: z.unknown() }));
const Parameter = z.looseObject({
  name: z.string(),
  in: z.string(),
  required: z.boolean(),
  description: z.string().default(''),
  schema: z.unknown(),
});
const Operation = z.looseObject({
  operationId: z.string(),
  tags: z.array(z.string()),
  summary: z.string(),
  description: z.string().default(''),
  parameters: z.array(Parameter),
  requestBody: z.looseObject({ content: Content }).optional(),
  responses: z.record(z.string(), z.looseObject({ description: z.string(), content: Content.optional() })),
});
type Operation = z.infer<typeof Operation>;
const OpenApi = z.looseObject({
  info: z.looseObject({ title: z.string(), description: z.string() }),
  servers: z.array(z.looseObject({ url: z.string() })),
  tags: z.array(z.looseObject({ name: z.string() })),
  paths: z.record(z.string(), z.record(z.string(), Operation)),
  components: z.looseObject({
    schemas: z.record(z.string(), z.unknown()),
    securitySchemes: z.looseObject({ api_key: z.looseObject({ description: z.string() }) }),
  }),
});
type OpenApi = z.infer<typeof OpenApi>;

interface Endpoint {
  method: string;
  path: string;
  operation: Operation;
}

const STYLE = `
:root { color-scheme: light dark; --line: light-dark(#dfe3e8, #272d36); --soft: light-dark(#eef0f3, #0a0d10) }
body { margin: 0; font: 15px/1.5 system-ui, sans-serif; display: grid; grid-template-columns: 17rem minmax(0, 60rem); color: light-dark(#14181f, #e9ecf0); background: light-dark(#f6f7f8, #0e1115) }
nav { position: sticky; top: 0; height: 100vh; overflow: auto; padding: 1rem; box-sizing: border-box; border-right: 1px solid var(--line); font-size: 13px }
nav ul { list-style: none; margin: 0; padding: 0 }
nav h2 { font-size: 13px; margin: 1rem 0 .2rem; border: 0 }
main { padding: 1rem 2rem 6rem }
a { color: light-dark(#2246c7, #93adff); text-decoration: none } a:hover { text-decoration: underline }
h2 { margin-top: 3rem; border-bottom: 1px solid var(--line) }
h3 { margin-top: 2.5rem } h4 { margin: 1.2rem 0 .3rem }
code { font: 13px ui-monospace, monospace; background: var(--soft); padding: .1em .3em; border-radius: 3px; overflow-wrap: anywhere }
.method { display: inline-block; min-width: 4em; font-weight: 700 }
.required { font-size: 12px; opacity: .7 }
table { border-collapse: collapse; width: 100%; margin: .3rem 0 } td p { margin: 0 }
th, td { text-align: left; vertical-align: top; padding: .35rem .6rem .35rem 0; border-bottom: 1px solid var(--line) }
th { font-size: 12px; opacity: .7 }
.narrow { display: none }
@media (max-width: 55rem) { body { display: flex; flex-direction: column-reverse } .narrow { display: block } nav { position: static; height: auto; border: 0 } main { padding: 1rem } table { display: block; overflow-x: auto } }
`;

const HEADERS = {
  'content-type': 'text/html; charset=utf-8',
  'content-security-policy': [
    "default-src 'none'",
    `style-src 'sha256-${createHash('sha256').update(STYLE).digest('base64')}'`,
    "base-uri 'none'",
    "form-action 'none'",
    "frame-ancestors 'none'",
  ].join('; '),
  'x-content-type-options': 'nosniff',
  'referrer-policy': 'no-referrer',
};

/** @throws ZodError if the document does not have the form that openapi.ts writes */
export function docsReply(document: object): Reply {
  return { status: 200, headers: HEADERS, body: page(OpenApi.parse(document)) };
}

function page(document: OpenApi): string {
  const { info, servers, tags, components } = document;
  const endpoints = Object.entries(document.paths).flatMap(([path, methods]) =>
    Object.entries(methods).map(([method, operation]) => ({ method: method.toUpperCase(), path, operation })),
  );
  const sections = tags.map(({ name }) => ({
    name,
    endpoints: endpoints.filter(({ operation }) => operation.tags.includes(name)),
  }));
  const schemas = Object.entries(components.schemas);
  return `<!doctype html>
<html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width, initial-scale=1">
<title>${escapeHtml(info.title)}</title><style>${STYLE}</style></head><body>
<nav id="contents"><strong>${escapeHtml(info.title)}</strong>${sections.map(navHtml).join('')}
<h2>Schemas</h2><ul>${schemas.map(([name]) => `<li><a href="#schema-${name}">${name}</a></li>`).join('')}</ul></nav>
<main><h1>${escapeHtml(info.title)}</h1><p class="narrow"><a href="#contents">All routes and schemas</a></p>${prose(info.description)}
<p>All paths are below ${servers.map(({ url }) => code(url)).join(', ')}. Programs read the same in <a href="/v1/openapi.json">openapi.json</a>. The <a href="/docs">manual</a> explains how to use them.</p>
<h2 id="authentication">Authentication</h2>${prose(components.securitySchemes.api_key.description)}
${sections.map((section) => `<h2>${escapeHtml(section.name)}</h2>${section.endpoints.map(endpointHtml).join('')}`).join('')}
<h2>Schemas</h2>${schemas.map(([name, schema]) => `<h3 id="schema-${name}">${name}</h3>${schemaHtml(readSchema(schema))}`).join('')}
</main></body></html>
`;
}

function navHtml(section: { name: string; endpoints: Endpoint[] }): string {
  const links = section.endpoints.map(
    ({ operation }) => `<li><a href="#${operation.operationId}">${escapeHtml(operation.summary)}</a></li>`,
  );
  return `<h2>${escapeHtml(section.name)}</h2><ul>${links.join('')}</ul>`;
}

function endpointHtml({ method, path, operation }: Endpoint): string {
  const { operationId, summary, description, parameters, requestBody, responses } = operation;
  const rows = parameters.map(({ name, in: place, required, description: text, schema }) =>
    fieldRow(name, readSchema(schema), { required, description: `${text}${text === '' ? '' : ' '}(${place})` }),
  );
  return `<section id="${operationId}"><h3>${escapeHtml(summary)}</h3>
<p><span class="method">${method}</span> ${code(path)}</p>${prose(description)}
${rows.length === 0 ? '' : `<h4>Parameters</h4><table><thead><tr><th>Name<th>Type<th>Meaning</thead><tbody>${rows.join('')}</tbody></table>`}
${requestBody === undefined ? '' : `<h4>Body</h4>${contentHtml(requestBody.content)}`}
<h4>Answers</h4><table><tbody>${Object.entries(responses)
    .map(
      ([status, response]) =>
        `<tr><td>${status}<td>${prose(response.description)}${Number(status) < 400 ? successHtml(response.content) : ''}</tr>`,
    )
    .join('')}</tbody></table></section>`;
}

/** Refusals are left out: they all have the form that the introduction describes. */
function successHtml(content: z.infer<typeof Content> | undefined): string {
  const shown = content?.['application/json'];
  return shown === undefined ? '' : contentHtml({ 'application/json': shown });
}

function contentHtml(content: z.infer<typeof Content>): string {
  return Object.values(content)
    .map(({ schema }) => schemaHtml(readSchema(schema)))
    .join('');
}
