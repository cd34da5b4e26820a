// The time on a screen that counts down or up.
import { useEffect, useState } from 'preact/hooks';
import { serviceNow } from '../core/clock.ts';
import { whileVisible } from '../core/data.ts';

const SECOND_MS = 1_000;

/** Milliseconds, new each second while the page is visible. */
export function useNow(): number {
  const [nowMs, setNow] = useState(serviceNow());
  useEffect(() => whileVisible(SECOND_MS, () => setNow(serviceNow())), []);
  return nowMs;
}
