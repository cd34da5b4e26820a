// The program loader of our bundle: a copy of the host's that takes nothing from the image in which it runs.

/** Every program that glibc's loader starts gets the libraries that this file names. No option of the loader turns that off. */
const PRELOAD_FILE = Buffer.from('/etc/ld.so.preload\0');

/**
 * `loader` with no preload file: its name becomes empty, and an empty name is never found. Only this copy changes, so programs of the image
 * are loaded as the image says. Throws if the loader does not hold the name as we know it.
 */
export function sealedLoader(loader: Buffer): Buffer {
  const sealed = Buffer.from(loader);
  let at = sealed.indexOf(PRELOAD_FILE);
  if (at < 0) {
    throw new Error(
      "the host's program loader is not glibc's: an image could put libraries into our program inside it",
    );
  }
  for (; at >= 0; at = sealed.indexOf(PRELOAD_FILE, at)) sealed.fill(0, at, at + PRELOAD_FILE.length);
  return sealed;
}
