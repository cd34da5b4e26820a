// The built console: its files are read and compressed once, at the start of the control plane. Their headers forbid files of other origins.
import { existsSync, readdirSync, readFileSync } from 'node:fs';
import { extname, join } from 'node:path';
import { gzipSync } from 'node:zlib';

/** Folder of the built console, which `npm run build` makes. It is not in the repository. */
const BUILT = join(import.meta.dirname, 'dist');
const YEAR_S = 31_536_000;

export interface BuiltFile {
  headers: Record<string, string>;
  bytes: Buffer;
  gzipped: Buffer;
}

export interface Console {
  /** The page, which is the same for every address of the console; undefined if the console was not built. */
  page: BuiltFile | undefined;
  /** A script, a style sheet or an icon; undefined if there is none of this name. */
  asset(name: string): BuiltFile | undefined;
}

const TYPES: Record<string, string> = {
  '.css': 'text/css; charset=utf-8',
  '.js': 'text/javascript; charset=utf-8',
  '.svg': 'image/svg+xml; charset=utf-8',
};

/**
 * The content security policy. Scripts and styles come only from our own files, requests go only to our own origin, and no script may write HTML.
 * Images that models make are shown from `data:` addresses. Videos are requested from our own origin.
 */
const POLICY = [
  "default-src 'none'",
  "script-src 'self'",
  "style-src 'self'",
  "connect-src 'self'",
  "img-src 'self' data:",
  "media-src 'self'",
  "base-uri 'none'",
  "form-action 'none'",
  "frame-ancestors 'none'",
  "require-trusted-types-for 'script'",
  "trusted-types 'none'",
].join('; ');

const SAFE = { 'x-content-type-options': 'nosniff', 'referrer-policy': 'no-referrer' };

export function openConsole(folder: string = BUILT): Console {
  if (!existsSync(join(folder, 'index.html'))) return { page: undefined, asset: () => undefined };
  const pageHeaders = {
    ...SAFE,
    'content-type': 'text/html; charset=utf-8',
    'content-security-policy': POLICY,
    'cache-control': 'no-cache',
    'cross-origin-opener-policy': 'same-origin',
  };
  const assets = new Map(
    readdirSync(join(folder, 'assets')).flatMap((name): [string, BuiltFile][] => {
      const type = TYPES[extname(name)];
      if (type === undefined) return [];
      // The name of an asset contains a digest of its content, so a browser may keep the asset for ever.
      const headers = { ...SAFE, 'content-type': type, 'cache-control': `public, max-age=${YEAR_S}, immutable` };
      return [[name, builtFile(join(folder, 'assets', name), headers)]];
    }),
  );
  return { page: builtFile(join(folder, 'index.html'), pageHeaders), asset: (name) => assets.get(name) };
}

function builtFile(file: string, headers: Record<string, string>): BuiltFile {
  const bytes = readFileSync(file);
  return { headers: { ...headers, vary: 'Accept-Encoding' }, bytes, gzipped: gzipSync(bytes, { level: 9 }) };
}
