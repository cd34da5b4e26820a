// A blob as a response: all of it, or the requested range of bytes (RFC 9110, section 14).
import { fail } from '../../../shared/errors.ts';
import type { Reply } from '../http/route.ts';
import type { ByteRange, OpenBlob } from './blobs.ts';

/** Replies 200 or 206 with the content. `headers` has the content type. @throws ServiceError `range_not_satisfiable` */
export async function blobReply(
  blob: OpenBlob,
  range: string | undefined,
  headers: Record<string, string>,
): Promise<Reply> {
  const { bytes } = blob;
  const part = readRange(range, bytes);
  if (part === 'unsatisfiable') {
    await blob.close();
    return fail(
      'range_not_satisfiable',
      `There are ${bytes} bytes, counted from 0: ask for a range that begins in them.`,
    );
  }
  const { first, last } = part ?? { first: 0, last: bytes - 1 };
  return {
    status: part === undefined ? 200 : 206,
    headers: {
      ...headers,
      'accept-ranges': 'bytes',
      'content-length': String(last - first + 1),
      ...(part === undefined ? {} : { 'content-range': `bytes ${first}-${last}/${bytes}` }),
      'x-content-type-options': 'nosniff',
    },
    stream: blob.stream(part),
  };
}

/** The header with which a browser saves the content under this name. */
export function attachment(filename: string): string {
  // `encodeURIComponent` does not encode some characters that a header parameter must not have.
  const encoded = encodeURIComponent(filename).replaceAll(
    /['()*]/g,
    (sign) => `%${sign.charCodeAt(0).toString(16).toUpperCase()}`,
  );
  return `attachment; filename*=UTF-8''${encoded}`;
}

/**
 * Undefined if the whole blob is requested: without the header, or with a range that we do not support, which RFC 9110 allows to ignore.
 */
function readRange(header: string | undefined, bytes: number): ByteRange | 'unsatisfiable' | undefined {
  const [, from, to] = /^bytes=(\d{0,15})-(\d{0,15})$/.exec(header ?? '') ?? [];
  if (from === undefined || to === undefined || (from === '' && to === '')) return undefined;
  if (from === '') {
    const count = Math.min(Number(to), bytes);
    return count === 0 ? 'unsatisfiable' : { first: bytes - count, last: bytes - 1 };
  }
  const first = Number(from);
  const last = to === '' ? bytes - 1 : Math.min(Number(to), bytes - 1);
  if (to !== '' && Number(to) < first) return undefined;
  return first < bytes ? { first, last } : 'unsatisfiable';
}
