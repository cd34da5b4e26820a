// The manual as it is served: every page, no dead link or anchor, nothing from other hosts; and the links of all documents in the sources.
import { createHash } from 'node:crypto';
import { existsSync, globSync, readFileSync, statSync } from 'node:fs';
import { dirname, join, normalize, resolve } from 'node:path';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { openManual, PAGES, anchorOf, renderMarkdown } from '../../../control-plane/docs/manual.ts';
import { type Answer, type Api, openApi } from '../../contract/api.ts';
import { headingsOf, linksOf, pageOf, readPages } from '../../kit/manual/documents.ts';

const ROOT = resolve(import.meta.dirname, '../../..');
const pages = readPages();

let api: Api;
let served: Map<string, Answer>;
beforeAll(async () => {
  api = await openApi({ process: { manual: openManual() } });
  const hrefs = ['/docs', '/docs/api', ...PAGES.filter((name) => name !== 'index').map((name) => `/docs/${name}`)];
  served = new Map();
  for (const href of hrefs) served.set(href, await api.call('GET', href));
});
afterAll(() => api.close());

describe('the routes', () => {
  test('every file of the folder is a page, and every page is served as HTML', () => {
    const files = globSync('control-plane/docs/*.md', { cwd: ROOT }).map((path) => path.replace(/^.*\/|\.md$/g, ''));
    expect(files.filter((name) => name !== 'README').toSorted()).toEqual([...PAGES].toSorted());
    for (const [href, { status, headers }] of served) {
      expect([href, status, headers['content-type']]).toEqual([href, 200, 'text/html; charset=utf-8']);
    }
  });

  test('the root redirects people to the manual, and an unknown page is a problem document', async () => {
    const root = await api.call('GET', '/');
    expect([root.status, root.headers['location'], root.body]).toEqual([302, '/docs', '']);
    for (const name of ['nothing', 'README', 'README.md', 'nothing.md', '.md', '__proto__']) {
      expect((await api.call('GET', `/docs/${name}`)).json).toMatchObject({ status: 404, code: 'not_found' });
    }
  });

  test('/llms.txt names every page, and each of its links answers; a page with .md is its Markdown', async () => {
    const { status, headers, body } = await api.call('GET', '/llms.txt');
    expect([status, headers['content-type']]).toEqual([200, 'text/markdown; charset=utf-8']);
    const links = [...body.matchAll(/\]\(([^)]+)\)/g)].map(([, href = '']) => href);
    expect(links).toEqual(['/v1/openapi.json', '/docs/api', ...PAGES.map((name) => `/docs/${name}.md`)]);
    for (const href of links) expect([href, (await api.call('GET', href)).status]).toEqual([href, 200]);
    const page = await api.call('GET', '/docs/customer.md');
    expect(page.headers['content-type']).toBe('text/markdown; charset=utf-8');
    expect(page.body).toBe(readFileSync(join(ROOT, 'control-plane/docs/customer.md'), 'utf8'));
    expect(body).toMatch(/\]\(\/docs\/customer\.md\): launch, log in/);
  });

  test('the navigation of each page lists every page and the API reference, and marks the current one', () => {
    for (const [href, { body }] of manualPages()) {
      const [navigation = ''] = /<nav[^]*<\/nav>/.exec(body) ?? [];
      for (const other of served.keys()) expect(navigation).toContain(`href="${other}"`);
      expect(navigation.match(/<a href="[^"]*" aria-current="page">/g)).toEqual([
        `<a href="${href}" aria-current="page">`,
      ]);
    }
  });

  test('a page loads nothing from other hosts, has no script, and its policy allows only its own style', () => {
    for (const [, { headers, body }] of manualPages()) {
      expect(body).not.toMatch(/<(script|link|img|iframe|form)|\ssrc=|@import|url\(|\son\w+=|style="/);
      const style = /<style>([^]*)<\/style>/.exec(body)?.[1] ?? '';
      const digest = createHash('sha256').update(style).digest('base64');
      expect(headers['content-security-policy']).toBe(
        `default-src 'none'; style-src 'sha256-${digest}'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'`,
      );
      expect(headers).toMatchObject({ 'x-content-type-options': 'nosniff', 'referrer-policy': 'no-referrer' });
    }
  });

  test('every page leads to the console', () => {
    for (const [, { body }] of manualPages())
      expect(/<header>[^]*<\/header>/.exec(body)?.[0]).toContain('href="/console"');
  });

  test('every link of a page has an existing page and anchor', () => {
    const others = ['/v1/openapi.json', '/console'];
    const dead = [...served].flatMap(([from, { body }]) =>
      [...body.matchAll(/href="([^"]+)"/g)]
        .map(([, href = '']) => href)
        .filter((href) => !others.includes(href) && !leads(href, from))
        .map((href) => `${from} -> ${href}`),
    );
    expect(dead).toEqual([]);
  });

  test('each heading has its own id in the page', () => {
    for (const name of PAGES) {
      const { body } = served.get(name === 'index' ? '/docs' : `/docs/${name}`) ?? { body: '' };
      const ids = [...body.matchAll(/<h[1-6] id="([^"]+)"/g)].map(([, id]) => id);
      const headings = headingsOf(pageOf(pages, `control-plane/docs/${name}.md`));
      expect(ids).toEqual(headings.map(({ title }) => anchorOf(title)));
    }
  });
});

describe('Markdown', () => {
  const render = (source: string): string => renderMarkdown(`# Title\n\n${source}`, (address) => address).html;

  test('raw HTML is shown as text', () => {
    expect(render('a <b>c</b>')).toContain('<p>a &lt;b&gt;c&lt;/b&gt;</p>');
    expect(render('<script>alert(1)</script>')).toContain('&lt;script&gt;alert(1)&lt;/script&gt;');
    expect(render('`<id>`')).toContain('<code>&lt;id&gt;</code>');
    expect(render('```sh\ncurl <id> & "x"\n```')).toContain('curl &lt;id&gt; &amp; &quot;x&quot;');
  });
  test('an address cannot leave its attribute, and an image is refused', () => {
    expect(render('[a](</x"onclick=y>)')).not.toContain('"onclick');
    expect(() => render('![a](b.png)')).toThrow('no images');
  });
  test('a page begins with its title', () => {
    expect(() => renderMarkdown('text', (address) => address)).toThrow('first level');
    expect(renderMarkdown('# A `b` *c*\n## D\n### E', (address) => address)).toMatchObject({
      title: 'A b c',
      sections: [{ id: 'd', title: 'D' }],
    });
  });
  test.each([
    ['Retries and Idempotency-Key', 'retries-and-idempotency-key'],
    ['What `run` does, and why', 'what-run-does-and-why'],
    ['12 µs (at most)', '12-µs-at-most'],
  ])('%s has the anchor that GitHub gives it', (title, anchor) => {
    expect(anchorOf(title.replaceAll('`', ''))).toBe(anchor);
  });
});

test.each(readPages())('$path has no dead link in the sources', (page) => {
  const dead = linksOf(page).filter((address) => !address.startsWith('https://') && !isInSources(page.path, address));
  expect(dead).toEqual([]);
});

function manualPages(): [string, Answer][] {
  return [...served].filter(([href]) => href !== '/docs/api');
}

function leads(href: string, from: string): boolean {
  const [path = '', anchor] = href.split('#', 2);
  const target = served.get(path === '' ? from : path);
  return target !== undefined && (anchor === undefined || target.body.includes(`id="${anchor}"`));
}

/** A link to a file beside the page, to a heading in it, or to something that the control plane serves. */
function isInSources(from: string, address: string): boolean {
  const [path = '', anchor] = address.split('#', 2);
  if (path.startsWith('/docs')) return leads(address, '/docs');
  const target = path === '' ? from : normalize(join(dirname(from), path));
  if (!existsSync(join(ROOT, target))) return false;
  if (anchor === undefined || statSync(join(ROOT, target)).isDirectory()) return anchor === undefined;
  return headingsOf(pageOf(pages, target)).some(({ title }) => anchorOf(title) === anchor);
}
