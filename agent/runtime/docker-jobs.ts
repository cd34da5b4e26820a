// Calls of the Docker Engine that only jobs need: to stop a container with a grace period, and to read a file of a container.
import type Docker from 'dockerode';
import { Readable } from 'node:stream';
import { absentAsUndefined, ignoring } from './docker-answers.ts';
import type { Engine, FileInContainer } from './engine.ts';

/** `findAll` lists the containers of a workload. */
export function jobCalls(
  docker: Docker,
  findAll: (workloadId: string) => Promise<Docker.ContainerInfo[]>,
): Pick<Engine, 'stop' | 'fileIn'> {
  return {
    stop: async (workloadId, graceMs) => {
      for (const { Id: id } of await findAll(workloadId)) await stopGently(docker.getContainer(id), graceMs);
    },
    fileIn: async (workloadId, path) => {
      const find = async (): Promise<Docker.Container> => {
        const [found] = await findAll(workloadId);
        if (found === undefined) throw new Error('the engine lists no container of the job');
        return docker.getContainer(found.Id);
      };
      const archive = await absentAsUndefined((await find()).getArchive({ path }));
      // The engine answers 404 also if the container was removed meanwhile.
      if (archive === undefined) await find();
      return archive && fileOfArchive(archive as Readable);
    },
  };
}

/** The engine's own stop would send the container's stop signal, which is SIGKILL for a job. */
async function stopGently(container: Docker.Container, graceMs: number): Promise<void> {
  // The engine refuses a signal with 409 if the container does not run.
  await ignoring([404, 409], container.kill({ signal: 'SIGTERM' }));
  // Whatever ends the wait early, the stop below decides.
  await container.wait({ abortSignal: AbortSignal.timeout(graceMs) }).catch(() => undefined);
  await ignoring([304, 404], container.stop({ t: 0 }));
}

const BLOCK_BYTES = 512;
const REGULAR = new Set(['0', '\0']);
/** Types of tar entries that describe the entry after them. They may come before the entry of the file. */
const ABOUT_NEXT = new Set(['x', 'g', 'L', 'K']);
/** Descriptions are short. A program in the container can make them longer by its file names. */
const DESCRIPTION_BYTES_MAX = 1024 * 1024;

/** The first entry of the archive; undefined if it is no regular file (a folder, a link, a pipe). Then the archive is destroyed. */
export async function fileOfArchive(archive: Readable): Promise<FileInContainer | undefined> {
  const source = openSource(archive);
  try {
    for (;;) {
      const header = await source.take(BLOCK_BYTES);
      const bytes = sizeOf(header);
      const type = header.toString('latin1', 156, 157);
      if (REGULAR.has(type)) return { bytes, stream: contentOf(archive, source, bytes) };
      if (!ABOUT_NEXT.has(type) || bytes > DESCRIPTION_BYTES_MAX) break;
      await source.take(Math.ceil(bytes / BLOCK_BYTES) * BLOCK_BYTES);
    }
    archive.destroy();
    return undefined;
  } catch (error) {
    archive.destroy();
    throw error;
  }
}

interface Source {
  /** Exactly `bytes` bytes. @throws Error if the archive ends before */
  take(bytes: number): Promise<Buffer>;
  /** At least one byte and at most `bytesMax`. @throws Error at the end of the archive */
  some(bytesMax: number): Promise<Buffer>;
}

function openSource(archive: Readable): Source {
  const pieces = (archive as AsyncIterable<Buffer>)[Symbol.asyncIterator]();
  let held = Buffer.alloc(0);
  const some = async (bytesMax: number): Promise<Buffer> => {
    while (held.length === 0) {
      const next = await pieces.next();
      if (next.done === true) throw new Error('the archive of the engine ends too early');
      held = Buffer.from(next.value);
    }
    const piece = held.subarray(0, bytesMax);
    held = held.subarray(piece.length);
    return piece;
  };
  return {
    some,
    take: async (bytes) => {
      const taken: Buffer[] = [];
      for (let left = bytes; left > 0;) {
        const piece = await some(left);
        taken.push(piece);
        left -= piece.length;
      }
      return Buffer.concat(taken);
    },
  };
}

/**
 * The archive ends together with the stream, read or not. Each archive that nobody reads would keep a connection to the engine, and a long one
 * the engine's lock on the container.
 */
function contentOf(archive: Readable, source: Source, bytes: number): Readable {
  let left = bytes;
  return new Readable({
    read(): void {
      if (left === 0) return void this.push(null);
      source.some(left).then(
        (piece) => {
          left -= piece.length;
          this.push(piece);
        },
        (error: unknown) => this.destroy(error as Error),
      );
    },
    destroy: (error, done) => {
      archive.destroy();
      done(error);
    },
  });
}

/** The size in a header: octal digits, or, for large files, a binary number whose first bit is set. */
function sizeOf(header: Buffer): number {
  if (((header[124] ?? 0) & 0x80) !== 0) return Number(header.readBigUInt64BE(128));
  const size = Number.parseInt(header.toString('latin1', 124, 136).replace(/[\0 ].*$/s, '') || '0', 8);
  if (!Number.isSafeInteger(size)) throw new Error('the archive of the engine has a header without a size');
  return size;
}
