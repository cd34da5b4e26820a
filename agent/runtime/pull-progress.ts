// Pure: what the engine tells of an image's layers, as bytes done of bytes in all.
import type { PullNews, PullProgress } from './engine.ts';

/** A line of what the engine tells while it pulls. */
export interface PullEvent {
  id?: string;
  status?: string;
  error?: string;
  progressDetail?: { current?: number; total?: number };
}

/** The registry was asked for the layer, and has not sent all of it. */
const ASKED = new Set(['Pulling fs layer', 'Downloading']);
/** It was sent, or the engine, which asks for few layers at a time, has not asked yet. */
const NOT_ASKED = new Set([
  'Waiting',
  'Verifying Checksum',
  'Download complete',
  'Extracting',
  'Pull complete',
  'Already exists',
]);
const WHOLE = new Set(['Download complete', 'Pull complete']);

/** Adds up the layers' downloads; a layer counts whole once it is complete. */
export function countBytes(onNews: (news: PullNews) => void): (event: PullEvent) => void {
  const layers = new Map<string, PullProgress>();
  const asked = new Set<string>();
  return ({ id, status = '', progressDetail }) => {
    if (id === undefined || !(ASKED.has(status) || NOT_ASKED.has(status))) return;
    if (ASKED.has(status)) asked.add(id);
    else asked.delete(id);
    const before = layers.get(id) ?? { done_bytes: 0, total_bytes: 0 };
    if (status === 'Downloading') {
      const total = progressDetail?.total ?? before.total_bytes;
      layers.set(id, { done_bytes: Math.min(progressDetail?.current ?? 0, total), total_bytes: total });
    } else if (WHOLE.has(status)) {
      layers.set(id, { ...before, done_bytes: before.total_bytes });
    }
    const all = [...layers.values()];
    onNews({
      done_bytes: all.reduce((sum, layer) => sum + layer.done_bytes, 0),
      total_bytes: all.reduce((sum, layer) => sum + layer.total_bytes, 0),
      downloading: asked.size > 0,
    });
  };
}
