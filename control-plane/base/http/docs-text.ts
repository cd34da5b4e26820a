// Renders the small subset of Markdown that descriptions use (paragraphs, lists, code) as HTML.

export function escapeHtml(text: string): string {
  return text.replaceAll('&', '&amp;').replaceAll('<', '&lt;').replaceAll('>', '&gt;').replaceAll('"', '&quot;');
}

export function code(text: string): string {
  return `<code>${escapeHtml(text)}</code>`;
}

/** An empty line separates paragraphs. Lines that begin with `- ` form a list. */
export function prose(text: string): string {
  return text
    .split('\n\n')
    .filter((block) => block !== '')
    .map(blockHtml)
    .join('');
}

function blockHtml(block: string): string {
  const lines = block.split('\n');
  const entries = lines.filter((line) => line.startsWith('- '));
  const rest = lines.filter((line) => !line.startsWith('- ')).join(' ');
  const paragraph = rest === '' ? '' : `<p>${inline(rest)}</p>`;
  const list = entries.map((entry) => `<li>${inline(entry.slice(2))}</li>`).join('');
  return list === '' ? paragraph : `${paragraph}<ul>${list}</ul>`;
}

function inline(text: string): string {
  return text
    .split('`')
    .map((part, i) => (i % 2 === 1 ? code(part) : escapeHtml(part)))
    .join('');
}
