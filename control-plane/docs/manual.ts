// The manual: its pages are read from this folder at the start of the control plane. The first reader has them converted from Markdown to HTML and
// framed, which would be a tenth of each start. Raw HTML is off, and each heading has an anchor. The headers of a page forbid everything but its
// style sheet.
import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { Marked, type RendererObject, type Tokens } from 'marked';
import { escapeHtml } from '../base/http/docs-text.ts';
import { createHash } from 'node:crypto';

/** File names without `.md`, in the order of the navigation. `/docs` shows `index`. */
export const PAGES = [
  'index',
  'customer',
  'cli',
  'people',
  'models',
  'supplier',
  'host',
  'operator',
  'metrics',
  'fleet',
  'deposits',
  'configuration',
  'catalogues',
  'trainers',
  'api-conventions',
  'architecture',
  'what-decides-about-billing',
  'glossary',
] as const;
export type PageName = (typeof PAGES)[number];

/** The API reference, which is not a file of this folder. */
const REFERENCE = { href: '/docs/api', title: 'API reference' };

export interface Manual {
  /** A complete HTML document; undefined if there is no such page. */
  page(name: string): string | undefined;
  /** The source of a page; undefined if there is no such page. */
  markdown(name: string): string | undefined;
  /** The text of /llms.txt. */
  llms(): string;
  headers: Record<string, string>;
}

/**
 * @throws Error if a page is missing. The first use of a page throws if any page links to one that does not exist: a test reads them all, so no
 * reader sees that.
 */
export function openManual(): Manual {
  const sources = new Map<string, string>(PAGES.map((name) => [name, sourceOf(name)]));
  const frame = openFrame(readFileSync(join(import.meta.dirname, 'manual.css'), 'utf8'));
  let made: Made | undefined;
  const manual = (): Made => (made ??= makeManual(sources, frame));
  return {
    page: (name) => manual().pages.get(name),
    markdown: (name) => sources.get(name),
    llms: () => manual().llms,
    headers: frame.headers,
  };
}

interface Made {
  pages: ReadonlyMap<string, string>;
  llms: string;
}

function makeManual(sources: ReadonlyMap<string, string>, frame: Frame): Made {
  const named = PAGES.map((name) => ({ name, source: sources.get(name) ?? '' }));
  const rendered = named.map(({ name, source }) => ({ name, source, ...renderPage(name, source) }));
  const entries = [...rendered.map(({ name, title }) => ({ href: hrefOfPage(name), title })), REFERENCE];
  const pages = rendered.map((page) => [page.name, frame.page(page, entries, hrefOfPage(page.name))] as const);
  return { pages: new Map(pages), llms: llmsText(rendered) };
}

export interface Section {
  /** The id of the heading for links. */
  id: string;
  title: string;
}

export interface Rendered {
  /** The text of the first heading. */
  title: string;
  /** The headings of the second level, in order. */
  sections: Section[];
  html: string;
}

/** `hrefOf` converts the address of each link. It throws if the address is not part of the manual. */
export function renderMarkdown(source: string, hrefOf: (address: string) => string): Rendered {
  const headings: (Section & { depth: number })[] = [];
  const renderer: RendererObject = {
    heading({ tokens, depth }) {
      const title = plainText(tokens);
      const id = anchorOf(title);
      headings.push({ id, title, depth });
      const inner = this.parser.parseInline(tokens);
      if (depth === 1) return `<h1 id="${id}">${inner}</h1>\n`;
      return `<h${depth} id="${id}">${inner} <a class="anchor" href="#${id}" aria-label="Link to this section">#</a></h${depth}>\n`;
    },
    link({ href, tokens }) {
      return `<a href="${escapeHtml(hrefOf(href))}">${this.parser.parseInline(tokens)}</a>`;
    },
    // A reader without a mouse must be able to scroll a block that is wider than the page.
    code: ({ text }) => `<pre tabindex="0"><code>${escapeHtml(text)}</code></pre>\n`,
    table(token) {
      const row = (cells: readonly Tokens.TableCell[], tag: 'td' | 'th'): string =>
        `<tr>${cells.map(({ tokens }) => `<${tag}>${this.parser.parseInline(tokens)}</${tag}>`).join('')}</tr>`;
      const rows = token.rows.map((cells) => row(cells, 'td')).join('\n');
      return `<div class="scroll" tabindex="0"><table><thead>${row(token.header, 'th')}</thead><tbody>${rows}</tbody></table></div>\n`;
    },
    html: ({ text }) => escapeHtml(text),
    image: ({ href }) => {
      throw new Error(`the manual has no images, the policy of its pages forbids them: ${href}`);
    },
  };
  const html = new Marked({ renderer }).parse(source, { async: false });
  const [first] = headings;
  if (first?.depth !== 1) throw new Error('a page of the manual begins with a heading of the first level');
  return { title: first.title, sections: headings.filter(({ depth }) => depth === 2), html };
}

/** The id that GitHub would give to the heading. */
export function anchorOf(title: string): string {
  return title
    .toLowerCase()
    .replaceAll(/[^\p{L}\p{N} _-]/gu, '')
    .replaceAll(' ', '-');
}

export interface Entry {
  href: string;
  title: string;
}

export interface Frame {
  /** A complete HTML document. `entries` are the navigation, `href` is the address of this page. */
  page(content: Rendered, entries: readonly Entry[], href: string): string;
  /** Headers of every page. The content policy allows this one style sheet, no script and no other host. */
  headers: Record<string, string>;
}

function openFrame(style: string): Frame {
  const digest = createHash('sha256').update(style).digest('base64');
  return {
    headers: {
      'content-type': 'text/html; charset=utf-8',
      'content-security-policy': `default-src 'none'; style-src 'sha256-${digest}'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'`,
      'x-content-type-options': 'nosniff',
      'referrer-policy': 'no-referrer',
    },
    page: (content, entries, href) => `<!doctype html>
<html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width, initial-scale=1">
<title>${escapeHtml(content.title)}</title><style>${style}</style></head><body>
<a class="skip" href="#content">Skip to the text</a>
<header><button popovertarget="pages" aria-label="Pages of the manual">Pages</button><a href="/docs">GPU rental and inference service</a><a class="console" href="/console">Console</a></header>
<nav id="pages" popover aria-label="Manual"><ul>${entries.map((entry) => entryHtml(entry, content, href)).join('')}</ul></nav>
<main id="content">${content.html}</main>
</body></html>
`,
  };
}

function renderPage(name: PageName, source: string): Rendered {
  try {
    return renderMarkdown(source, hrefOf);
  } catch (error) {
    throw new Error(`the page ${name} of the manual cannot be rendered`, { cause: error });
  }
}

function sourceOf(name: PageName): string {
  return readFileSync(join(import.meta.dirname, `${name}.md`), 'utf8');
}

/** Pages link to each other as files (`customer.md#launch`), so that the links also work in the sources. */
function hrefOf(address: string): string {
  if (address.startsWith('#') || address.startsWith('/') || address.startsWith('https://')) return address;
  const [, name = '', anchor = ''] = /^([a-z-]+)\.md(#.*)?$/.exec(address) ?? [];
  const page = PAGES.find((each) => each === name);
  if (page === undefined) throw new Error(`${address} is no page of the manual`);
  return hrefOfPage(page) + anchor;
}

function hrefOfPage(name: PageName): string {
  return name === 'index' ? '/docs' : `/docs/${name}`;
}

function plainText(tokens: readonly Tokens.Generic[]): string {
  return tokens.map((token) => (token.tokens === undefined ? String(token['text']) : plainText(token.tokens))).join('');
}

/** The entry of the current page also lists its sections. */
function entryHtml(entry: Entry, { sections }: Rendered, href: string): string {
  const title = escapeHtml(entry.title);
  if (entry.href !== href) return `<li><a href="${entry.href}">${title}</a></li>`;
  const below = sections.map(({ id, title: name }) => `<li><a href="#${id}">${escapeHtml(name)}</a></li>`).join('');
  return `<li><a href="${entry.href}" aria-current="page">${title}</a>${below === '' ? '' : `<ul>${below}</ul>`}</li>`;
}

interface SourcePage {
  name: string;
  title: string;
  source: string;
}

/**
 * The text of /llms.txt, the start page for programs that read the manual. It says what the service is, and links the pages as Markdown, each
 * with the sentence about it from the page `index`.
 */
function llmsText(pages: readonly SourcePage[]): string {
  const first = pages.find(({ name }) => name === 'index')?.source ?? '';
  const about = new Map(
    first.split('\n').flatMap((line) => {
      const [, name, words] = /^- \[[^\]]+\]\(([a-z-]+)\.md\): ([^.]+)\./.exec(line) ?? [];
      return name === undefined ? [] : [[name, words]];
    }),
  );
  const lines = pages.map(({ name, title }) => {
    const words = about.get(name);
    return `- [${title}](/docs/${name}.md)${words === undefined ? '' : `: ${words}`}`;
  });
  return `# GPU rental and inference service

> Rent GPUs by the second, call models with clients of the OpenAI API, and offer machines. Everything is an HTTP API below /v1 with JSON and API keys
> (Authorization: Bearer). The command line svc does what the API does.

## API

- [OpenAPI document](/v1/openapi.json): every path, schema, scope and error
- [API reference](/docs/api): the same for people

## Manual, as Markdown

${lines.join('\n')}
`;
}
