// Code of the console that is loaded when somebody needs it: screens and libraries.
import { ApiError, asApiError } from './api.ts';

/** Waits for code. It never comes if the network is away, or an upgrade has replaced the files of this page. @throws ApiError `code_not_loaded` */
export async function loaded<T>(code: Promise<T>): Promise<T> {
  try {
    return await code;
  } catch {
    throw new ApiError(
      0,
      'code_not_loaded',
      'A part of the console could not be loaded. The network may be away, or the console was upgraded: load the page again.',
    );
  }
}

export type Loaded<T> = { code: T } | { error: ApiError };

/** Tells the code once it is there, or why it is not. After a call of the returned function it tells nothing: something else is shown by then. */
export function tellLoaded<T>(code: Promise<T>, tell: (found: Loaded<T>) => void): () => void {
  let isWanted = true;
  const found = (result: Loaded<T>): void => {
    if (isWanted) tell(result);
  };
  void loaded(code).then(
    (there) => found({ code: there }),
    (failure: unknown) => found({ error: asApiError(failure) }),
  );
  return () => {
    isWanted = false;
  };
}
