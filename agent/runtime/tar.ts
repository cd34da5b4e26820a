// Makes small tar archives (POSIX ustar) for the Engine's API.

const BLOCK_BYTES = 512;
/** The size of the name field in a header. */
const NAME_BYTES_MAX = 100;

export interface TarEntry {
  name: string;
  /** Undefined for a folder. */
  content?: string;
}

/** Everything belongs to root; files are 0644, folders 0755. Throws on a name longer than 100 bytes. */
export function tarOf(entries: readonly TarEntry[]): Buffer {
  const blocks = entries.flatMap(({ name, content }) => {
    const bytes = Buffer.from(content ?? '');
    const padding = Buffer.alloc((BLOCK_BYTES - (bytes.length % BLOCK_BYTES)) % BLOCK_BYTES);
    return [headerOf(name, content === undefined ? null : bytes.length), bytes, padding];
  });
  return Buffer.concat([...blocks, Buffer.alloc(2 * BLOCK_BYTES)]);
}

function headerOf(name: string, sizeBytes: number | null): Buffer {
  const header = Buffer.alloc(BLOCK_BYTES);
  if (Buffer.byteLength(name) > NAME_BYTES_MAX) throw new Error(`${name} is too long for an archive`);
  header.write(name, 0);
  header.write(sizeBytes === null ? '0000755' : '0000644', 100);
  for (const at of [108, 116]) header.write('0000000', at);
  header.write((sizeBytes ?? 0).toString(8).padStart(11, '0'), 124);
  header.write('00000000000', 136);
  header.write(' '.repeat(8), 148);
  header.write(sizeBytes === null ? '5' : '0', 156);
  header.write('ustar', 257);
  header.write('00', 263);
  const sum = header.reduce((total, byte) => total + byte, 0);
  header.write(`${sum.toString(8).padStart(6, '0')}\0 `, 148);
  return header;
}
