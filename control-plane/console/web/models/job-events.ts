// The events of a fine-tuning job, oldest first. Each read begins after the last event that was read.
import { useState } from 'preact/hooks';
import type { FineTuningEvent } from '../../../../shared/api/fine-tuning.ts';
import { type ApiError, get } from '../core/api.ts';
import { useReads } from '../core/data.ts';

const PAGE = 100;
const REREAD_MS = 5_000;

export interface JobEvents {
  events: readonly FineTuningEvent[];
  error: ApiError | undefined;
}

/** Follows the job while `isOpen`, and reads once more when it has ended. */
export function useJobEvents(id: string, isOpen: boolean): JobEvents {
  const [events, setEvents] = useState<readonly FineTuningEvent[]>([]);
  const { error } = useReads(
    (signal) => openReader(id, signal, setEvents),
    [id, isOpen],
    isOpen ? REREAD_MS : undefined,
  );
  return { events, error };
}

/** Returns a function that reads the new events. Only one read is under way at a time. */
function openReader(
  id: string,
  signal: AbortSignal,
  tell: (events: readonly FineTuningEvent[]) => void,
): () => Promise<void> {
  let all: readonly FineTuningEvent[] = [];
  let isReading = false;
  return async () => {
    if (isReading) return;
    isReading = true;
    try {
      for (let hasMore = true; hasMore;) {
        const last = all.at(-1);
        const after = last === undefined ? '' : `&after=${encodeURIComponent(last.id)}`;
        const path = `/v1/fine_tuning/jobs/${encodeURIComponent(id)}/events?order=asc&limit=${PAGE}${after}`;
        const page = await get<{ data: FineTuningEvent[]; has_more: boolean }>(path, { signal });
        all = [...all, ...page.data];
        hasMore = page.has_more;
        tell(all);
      }
    } finally {
      isReading = false;
    }
  };
}
