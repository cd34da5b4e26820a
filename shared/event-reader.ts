// Reads the server-sent events of an answer, one after another. Comment lines are left out.

export interface ReceivedEvent {
  type: string;
  id: string | undefined;
  /** Parsed JSON; undefined if it is none. */
  data: unknown;
}

/** The largest events are chunks of models and lines of logs, of some hundred KiB. */
export const EVENT_CHARS_MAX = 4 * 1024 * 1024;

/**
 * The iteration ends with the answer. The body is read with a reader, because not every browser can iterate over it. @throws Error if an event is
 * longer than EVENT_CHARS_MAX
 */
export async function* eventsOf(response: Response): AsyncGenerator<ReceivedEvent> {
  if (response.body === null) return;
  const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
  try {
    let text = '';
    for (let read = await reader.read(); !read.done; read = await reader.read()) {
      // A piece may end between the two characters of a line end, so they are replaced in what is there with the new piece.
      text = (text + read.value).replaceAll('\r\n', '\n');
      const blocks = text.split('\n\n');
      text = blocks.pop() ?? '';
      if (text.length > EVENT_CHARS_MAX) throw new Error(`an event has more than ${EVENT_CHARS_MAX / 1024 ** 2} MiB`);
      for (const block of blocks) {
        const event = eventOf(block);
        if (event !== undefined) yield event;
      }
    }
  } finally {
    await reader.cancel().catch(() => undefined);
  }
}

function eventOf(block: string): ReceivedEvent | undefined {
  let type = 'message';
  let id: string | undefined;
  const data: string[] = [];
  for (const line of block.split('\n')) {
    const [, name = '', value = ''] = /^([^:]+): ?(.*)$/s.exec(line) ?? [];
    if (name === 'event') type = value;
    if (name === 'id') id = value;
    if (name === 'data') data.push(value);
  }
  return data.length === 0 ? undefined : { type, id, data: jsonOf(data.join('\n')) };
}

function jsonOf(text: string): unknown {
  try {
    return JSON.parse(text) as unknown;
  } catch {
    return undefined;
  }
}
