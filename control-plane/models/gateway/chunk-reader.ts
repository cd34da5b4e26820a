// Reads the chunks of one stream. Nearly all of them differ only in their text, so most are read without parsing their JSON.
//
// Example of two chunks that follow each other:
//
//   {"id":"c-1","choices":[{"index":0,"delta":{"content":"Hello"},"finish_reason":null}]}
//   {"id":"c-1","choices":[{"index":0,"delta":{"content":" you"},"finish_reason":null}]}
//   └─────────────────────── before ──────────────────┘└ text ┘└────── after ───────────┘
//
// The first one is parsed, and what is around its text is kept: its frame. The second one has the same frame, and its text is a JSON string without
// an escape. JSON is read from left to right, so the second one says the same except for that text.
//
// A text may also occur elsewhere in its chunk. So a frame is kept only if the chunk with another text in this frame says just that text.
import { type Chunk, readChunk } from './chat-wire.ts';

/** Undefined if the data is not a chunk, for example an error. */
export type ReadChunk = (data: string) => Chunk | undefined;

interface Frame {
  before: string;
  after: string;
}

export function openChunkReader(): ReadChunk {
  let frame: Frame | undefined;
  let framesLeft = FRAMES_WITHOUT_USE_MAX;
  return (data) => {
    const text = frame === undefined ? undefined : textIn(data, frame);
    if (text !== undefined) {
      framesLeft = FRAMES_WITHOUT_USE_MAX;
      return saying(text);
    }
    const chunk = readChunk(data);
    if (chunk === undefined || framesLeft === 0 || !saysOnlyText(chunk)) return chunk;
    framesLeft -= 1;
    frame = frameOf(data, chunk.content);
    return chunk;
  };
}

/** If all chunks of a server differ, none of them fits a frame. To look for a frame each time would make them dearer. */
const FRAMES_WITHOUT_USE_MAX = 3;

/** A JSON string without an escape. JSON allows no control characters in a string. */
const PLAIN_STRING = /^"[^"\\\p{Cc}]*"$/u;

function textIn(data: string, { before, after }: Frame): string | undefined {
  const end = data.length - after.length;
  // Two slices are compared in one step. `startsWith` and `endsWith` compare character by character.
  if (data.slice(0, before.length) !== before || data.slice(end) !== after) return undefined;
  const literal = data.slice(before.length, end);
  return PLAIN_STRING.test(literal) ? literal.slice(1, -1) : undefined;
}

function saying(content: string): Chunk {
  return { content, thought: '', finishReason: undefined, usage: undefined };
}

function saysOnlyText({ content, thought, finishReason, usage }: Chunk): boolean {
  return content !== '' && thought === '' && finishReason === undefined && usage === undefined;
}

/** No server sends this text by chance. */
const PROBE = 'the text of another chunk';

function frameOf(data: string, content: string): Frame | undefined {
  const literal = JSON.stringify(content);
  const at = data.indexOf(literal);
  if (at < 0) return undefined;
  const frame = { before: copyOf(data.slice(0, at)), after: copyOf(data.slice(at + literal.length)) };
  const probe = readChunk(`${frame.before}${JSON.stringify(PROBE)}${frame.after}`);
  return probe !== undefined && saysOnlyText(probe) && probe.content === PROBE ? frame : undefined;
}

/** A slice would keep the text of the whole piece, up to 64 kB, for as long as the stream lives. */
function copyOf(text: string): string {
  return Buffer.from(text).toString();
}
