// The time on a screen that counts down or up.
import { useEffect, useState } from 'preact/hooks';
import { whileVisible } from '../core/data.ts';

const SECOND_MS = 1_000;

/** Milliseconds, new each second while the page is visible. */
export function useNow(): number {
  const [nowMs, setNow] = useState(Date.now());
  useEffect(() => whileVisible(SECOND_MS, () => setNow(Date.now())), []);
  return nowMs;
}
