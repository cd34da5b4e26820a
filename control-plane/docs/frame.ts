// The frame of a manual page: navigation, style, and headers that forbid everything else.
import { createHash } from 'node:crypto';
import { escapeHtml } from '../base/http/docs-text.ts';
import type { Rendered } from './render.ts';

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

export function openFrame(style: string): Frame {
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
<header><button popovertarget="pages" aria-label="Pages of the manual">Pages</button><a href="/docs">GPU rental and inference service</a></header>
<nav id="pages" popover aria-label="Manual"><ul>${entries.map((entry) => entryHtml(entry, content, href)).join('')}</ul></nav>
<main id="content">${content.html}</main>
</body></html>
`,
  };
}

/** The entry of the current page also lists its sections. */
function entryHtml(entry: Entry, { sections }: Rendered, href: string): string {
  const title = escapeHtml(entry.title);
  if (entry.href !== href) return `<li><a href="${entry.href}">${title}</a></li>`;
  const below = sections.map(({ id, title: name }) => `<li><a href="#${id}">${escapeHtml(name)}</a></li>`).join('');
  return `<li><a href="${entry.href}" aria-current="page">${title}</a>${below === '' ? '' : `<ul>${below}</ul>`}</li>`;
}
