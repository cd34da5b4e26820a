// A container's log on its way out: the engine's frames taken apart, and each line sent with its time and where it was written to.
import type { Readable } from 'node:stream';
import type { LogLine } from '../../shared/protocol/logs.ts';

/** The engine's frame: one byte that names the stream, three of nothing, four for the length of what follows. */
const HEADER_BYTES = 8;
const STDERR = 2;
/** No honest frame is longer: the engine cuts lines at 16 KiB. */
const FRAME_BYTES_MAX = 1024 * 1024;

/** One JSON line for each line of the log. Throws where the engine sends what is no log. */
export async function* logLines(raw: Readable): AsyncGenerator<string> {
  for await (const { kind, text } of frames(raw)) {
    const at = text.indexOf(' ');
    const line: LogLine = {
      at: text.slice(0, at),
      stream: kind === STDERR ? 'stderr' : 'stdout',
      line: text.slice(at + 1).replace(/\r?\n$/, ''),
    };
    yield `${JSON.stringify(line)}\n`;
  }
}

async function* frames(raw: Readable): AsyncGenerator<{ kind: number; text: string }> {
  let held = Buffer.alloc(0);
  for await (const chunk of raw) {
    held = Buffer.concat([held, chunk as Buffer]);
    while (held.length >= HEADER_BYTES) {
      const length = held.readUInt32BE(4);
      if (length > FRAME_BYTES_MAX) throw new Error('the engine sent a log frame of impossible length');
      const end = HEADER_BYTES + length;
      if (held.length < end) break;
      yield { kind: held[0] ?? 0, text: held.toString('utf8', HEADER_BYTES, end) };
      held = held.subarray(end);
    }
  }
}
