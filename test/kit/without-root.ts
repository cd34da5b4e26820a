// A part of a test as a user who may not open every file.

/** Elsewhere than in CI, the tests may run as a user who is not root already. */
export async function withoutRoot<T>(work: () => Promise<T>): Promise<T> {
  if (process.geteuid?.() !== 0) return work();
  process.seteuid?.(65_534);
  try {
    return await work();
  } finally {
    process.seteuid?.(0);
  }
}
