// The pages of the manual: read from this folder and rendered once, at the start of the control plane.
import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { openFrame } from './frame.ts';
import { type Rendered, renderMarkdown } from './render.ts';

/** File names without `.md`, in the order of the navigation. `/docs` shows `index`. */
export const PAGES = [
  'index',
  'customer',
  'models',
  'supplier',
  'host',
  'operator',
  'fleet',
  'configuration',
  'catalogues',
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
  headers: Record<string, string>;
}

/** @throws Error if a page is missing, or if it links to a page that does not exist */
export function openManual(): Manual {
  const rendered = new Map(PAGES.map((name): [PageName, Rendered] => [name, renderPage(name)]));
  const frame = openFrame(readFileSync(join(import.meta.dirname, 'manual.css'), 'utf8'));
  const entries = [...rendered].map(([name, { title }]) => ({ href: hrefOfPage(name), title }));
  const pages = new Map<string, string>(
    [...rendered].map(([name, page]) => [name, frame.page(page, [...entries, REFERENCE], hrefOfPage(name))]),
  );
  return { page: (name) => pages.get(name), headers: frame.headers };
}

function renderPage(name: PageName): Rendered {
  try {
    return renderMarkdown(readFileSync(join(import.meta.dirname, `${name}.md`), 'utf8'), hrefOf);
  } catch (error) {
    throw new Error(`the page ${name} of the manual cannot be rendered`, { cause: error });
  }
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
