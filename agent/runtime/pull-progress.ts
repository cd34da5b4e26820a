// Adds up the engine's progress lines of a pull to bytes done and bytes in total. Pure.
import type { PullNews, PullProgress } from './engine.ts';

/** One progress line of the engine. */
export interface PullEvent {
  id?: string;
  status?: string;
  error?: string;
  progressDetail?: { current?: number; total?: number };
}

/** The engine has requested the layer, and the registry has not sent all of it. */
const ASKED = new Set(['Pulling fs layer', 'Downloading']);
/** The layer has arrived, or is not requested yet: the engine requests few layers at a time. */
const NOT_ASKED = new Set([
  'Waiting',
  'Verifying Checksum',
  'Download complete',
  'Extracting',
  'Pull complete',
  'Already exists',
]);
const WHOLE = new Set(['Download complete', 'Pull complete']);

/** Adds up the downloads of all layers. A complete layer counts with its full size. */
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
