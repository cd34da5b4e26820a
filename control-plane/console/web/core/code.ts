// Code of the console that is loaded when somebody needs it: screens and libraries.
import { ApiError } from './api.ts';

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
