// Turns the engine's log frames into JSON lines: each line of the log with its time and its stream (stdout or stderr).
import type { Readable } from 'node:stream';
import type { LogLine } from '../../shared/protocol/logs.ts';

/** Header of the engine's frame: one byte for the stream, three zero bytes, four for the length of the payload. */
const HEADER_BYTES = 8;
const STDERR = 2;
/** The engine cuts lines at 16 KiB, so a longer frame is a fault. */
const FRAME_BYTES_MAX = 1024 * 1024;

/** One JSON line for each line of the log. Throws if the engine sends anything but log frames. */
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
