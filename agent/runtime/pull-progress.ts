// Pure: what the engine tells of an image's layers, as bytes done of bytes in all.
import type { PullProgress } from './engine.ts';

/** A line of what the engine tells while it pulls. */
export interface PullEvent {
  id?: string;
  status?: string;
  error?: string;
  progressDetail?: { current?: number; total?: number };
}

/** Adds up the layers' downloads; a layer counts whole once it is complete. */
export function countBytes(onProgress: (progress: PullProgress) => void): (event: PullEvent) => void {
  const layers = new Map<string, PullProgress>();
  return ({ id, status, progressDetail }) => {
    if (id === undefined) return;
    const before = layers.get(id) ?? { done_bytes: 0, total_bytes: 0 };
    if (status === 'Downloading') {
      const total = progressDetail?.total ?? before.total_bytes;
      layers.set(id, { done_bytes: Math.min(progressDetail?.current ?? 0, total), total_bytes: total });
    } else if (status === 'Download complete' || status === 'Pull complete') {
      layers.set(id, { ...before, done_bytes: before.total_bytes });
    } else {
      return;
    }
    const all = [...layers.values()];
    onProgress({
      done_bytes: all.reduce((sum, layer) => sum + layer.done_bytes, 0),
      total_bytes: all.reduce((sum, layer) => sum + layer.total_bytes, 0),
    });
  };
}
