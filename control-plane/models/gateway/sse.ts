// Reads server-sent events from a stream, and yields the data of each event.
import { STREAM_EVENT_BYTES_MAX } from '../../../shared/limits.ts';

/** The body is not a stream of events that we can read. */
export class BadEvents extends Error {}

/** Yields, for each piece that ends at least one event, the data of those events. Throws BadEvents, and what `body` throws. */
export async function* eventData(body: AsyncIterable<Buffer>): AsyncGenerator<string[]> {
  const decoder = new TextDecoder();
  let rest = '';
  for await (const piece of body) {
    const text = rest + decoder.decode(piece, { stream: true });
    // A piece may end between the two characters of a line end.
    const whole = text.endsWith('\r') ? text.slice(0, -1) : text;
    const blocks = whole.includes('\r') ? whole.split(/\r?\n\r?\n/) : whole.split('\n\n');
    rest = (blocks.pop() ?? '') + text.slice(whole.length);
    if (rest.length > STREAM_EVENT_BYTES_MAX) throw new BadEvents('an event is too large');
    const events = blocks.map(dataOf).filter((data) => data !== '');
    if (events.length > 0) yield events;
  }
}

function dataOf(block: string): string {
  // Nearly every event is one line of data.
  if (block.startsWith('data: ') && !block.includes('\n')) return block.slice(6);
  const lines = block.split(/\r?\n/).filter((line) => line.startsWith('data:'));
  return lines.map((line) => line.slice(5).replace(/^ /, '')).join('\n');
}
