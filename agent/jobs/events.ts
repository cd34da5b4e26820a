// Reads the events that a job appends to its events file, from an offset on.
import type { Readable } from 'node:stream';
import { JOB_EVENT_LINE_BYTES_MAX, JOB_EVENTS_BYTES_MAX, JOB_EVENTS_PER_MESSAGE_MAX } from '../../shared/limits.ts';
import { jobEventOf, type SentJobEvent } from '../../shared/protocol/job.ts';

/** Limit of lines that one call reads, so that a file of empty lines cannot keep the agent busy. */
const LINES_AT_ONCE_MAX = 2_000;
const NEWLINE = 10;

export interface NewEvents {
  events: SentJobEvent[];
  /** The offset after the last whole line that was read. */
  end: number;
  /** For each line that is not a valid event, the offset after it. Empty lines do not count. */
  garbage: number[];
}

/**
 * The next events after `offset`, at most as many as one message may contain. A last line without a line end is left for the next call. If
 * `isOver` is true, that line is read too, because the program will write nothing more. Destroys the stream.
 */
export async function nextEvents(stream: Readable, offset: number, isOver: boolean): Promise<NewEvents> {
  const read: NewEvents = { events: [], end: offset, garbage: [] };
  const take = (line: string | undefined, end: number): void => {
    const event = line === undefined ? undefined : jobEventOf(line);
    if (event !== undefined) read.events.push({ end, event });
    else if (line !== '') read.garbage.push(end);
    read.end = end;
  };
  let lines = 0;
  let unfinished: { line: string | undefined; end: number } | undefined;
  for await (const { line, end, isWhole } of linesAfter(stream, offset)) {
    unfinished = isWhole ? undefined : { line, end };
    if (!isWhole) break;
    take(line, end);
    lines += 1;
    if (read.events.length === JOB_EVENTS_PER_MESSAGE_MAX || lines === LINES_AT_ONCE_MAX) break;
  }
  if (unfinished !== undefined && isOver) take(unfinished.line, unfinished.end);
  return read;
}

interface Line {
  /** The text without its line end; undefined if it is too long. */
  line: string | undefined;
  end: number;
  isWhole: boolean;
}

async function* linesAfter(stream: Readable, offset: number): AsyncGenerator<Line> {
  let at = 0;
  let held = Buffer.alloc(0);
  let isTooLong = false;
  const lineOf = (rest: Buffer): string | undefined => {
    const whole = Buffer.concat([held, rest]);
    return isTooLong || whole.length > JOB_EVENT_LINE_BYTES_MAX ? undefined : whole.toString('utf8').trim();
  };
  for await (const piece of stream as AsyncIterable<Buffer>) {
    let rest = piece.subarray(Math.min(piece.length, Math.max(0, offset - at)));
    at += piece.length;
    for (let newline = rest.indexOf(NEWLINE); newline >= 0; newline = rest.indexOf(NEWLINE)) {
      const line = lineOf(rest.subarray(0, newline));
      rest = rest.subarray(newline + 1);
      [held, isTooLong] = [Buffer.alloc(0), false];
      yield { line, end: at - rest.length, isWhole: true };
    }
    if (held.length + rest.length > JOB_EVENT_LINE_BYTES_MAX) isTooLong = true;
    held = isTooLong ? Buffer.alloc(0) : Buffer.concat([held, rest]);
    if (at >= JOB_EVENTS_BYTES_MAX) return;
  }
  if (held.length > 0 || isTooLong) yield { line: lineOf(Buffer.alloc(0)), end: at, isWhole: false };
}
