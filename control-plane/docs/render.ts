// Converts one page of the manual from Markdown to HTML. Raw HTML is off, and each heading has an anchor.
import { Marked, type RendererObject, type Tokens } from 'marked';
import { escapeHtml } from '../base/http/docs-text.ts';

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

function plainText(tokens: readonly Tokens.Generic[]): string {
  return tokens.map((token) => (token.tokens === undefined ? String(token['text']) : plainText(token.tokens))).join('');
}
