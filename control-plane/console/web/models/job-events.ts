// The events of a fine-tuning job, oldest first, read on from the last one; and the curve of its loss.
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

/** Reads what is new each time that it is called, one call at a time. */
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

export interface LossPoint {
  step: number;
  loss: number;
}

/** One point for each step: a step that was trained again after a loss of its machine counts as it was the last time. */
export function lossOf(events: readonly FineTuningEvent[]): LossPoint[] {
  const points = new Map<number, number>();
  for (const { type, data } of events) {
    const { step, loss } = data;
    if (type === 'metrics' && typeof step === 'number' && typeof loss === 'number') points.set(step, loss);
  }
  return [...points].map(([step, loss]) => ({ step, loss })).toSorted((a, b) => a.step - b.step);
}

/** The path of the curve in a square of 100 by 100; the lower edge is a loss of 0. */
export function pathOf(points: readonly LossPoint[], top: number): string {
  const [first, last] = [points.at(0)?.step ?? 0, points.at(-1)?.step ?? 0];
  const width = Math.max(1, last - first);
  return points
    .map(({ step, loss }, index) => {
      const x = (((step - first) / width) * 100).toFixed(2);
      return `${index === 0 ? 'M' : 'L'}${x} ${(100 - (loss / top) * 100).toFixed(2)}`;
    })
    .join('');
}
