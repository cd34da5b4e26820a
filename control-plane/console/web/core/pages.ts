// All pages of a list, for screens that must know every row: what can be chosen, and what is added up.
import { useState } from 'preact/hooks';
import { type Reads, useReads } from './data.ts';
import { type AllRows, openReader } from './page-reader.ts';

export interface AllPages<T> extends Reads {
  /** Undefined until all pages were read for the first time. */
  rows: readonly T[] | undefined;
  isCut: boolean;
}

/** All pages of a list while the component is shown. `path` has no `limit`. An undefined path reads nothing. */
export function useAllPages<T>(path: string | undefined, everyMs?: number): AllPages<T> {
  const [found, setFound] = useState<AllRows<T> & { path: string }>();
  const { error, reload } = useReads(
    (signal) => {
      if (path === undefined) return async () => undefined;
      return openReader<T>(path, { signal, everyMs }, (all) => setFound({ path, ...all }));
    },
    [path],
    everyMs,
  );
  const isOfPath = found !== undefined && found.path === path;
  return { rows: isOfPath ? found.rows : undefined, isCut: isOfPath && found.isCut, error, reload };
}
