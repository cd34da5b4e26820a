// Follows the log of a container. After a lost connection, the stream is opened again and continues after the last line.
import type { InstanceLog } from '../../../../shared/api/instance-journal.ts';
import { LOG_LINES_MAX } from '../../../../shared/limits.ts';
import { ApiError, events } from '../core/api.ts';

export type Line = InstanceLog['data'][number];

const RETRY_MS = 2_000;

interface FollowOptions {
  /** How many of the lines until now are taken too. */
  tail: number;
  signal: AbortSignal;
  take(line: Line): void;
}

/** Resolves when the container has stopped, or `signal` aborts. @throws ApiError if the API refuses, or has never answered */
export async function follow(id: string, { tail, signal, take }: FollowOptions): Promise<void> {
  let last: string | undefined;
  let wasOpen = false;
  while (!signal.aborted) {
    // The program may have written much while the stream was away.
    const lines = last === undefined ? `tail=${tail}` : `tail=${LOG_LINES_MAX}&since=${encodeURIComponent(last)}`;
    const path = `/v1/instances/${id}/logs?follow=true&${lines}`;
    try {
      for await (const { type, data } of events(path, { signal })) {
        if (type === 'end') return;
        const line = data as Line;
        last = line.at;
        take(line);
      }
    } catch (error) {
      if (signal.aborted) return;
      // An open stream that breaks off fails with an error of the browser, which is no refusal. A refusal is shown.
      if (error instanceof ApiError && (error.status !== 0 || !wasOpen)) throw error;
    }
    wasOpen = true;
    await new Promise((resolve) => setTimeout(resolve, RETRY_MS));
  }
}
