// Decides what a form says of a refusal below its fields.
import type { ApiError } from './api.ts';

/** The text of the refusal, unless the fields `shown` show all of its rules. */
export function messageBelow({ errors, message }: ApiError, shown: ReadonlySet<string>): string {
  const isShown = errors.length > 0 && errors.every(({ field }) => shown.has(field));
  return isShown ? 'Correct the fields that are marked.' : message;
}
