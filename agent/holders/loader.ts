// Makes the program loader of our bundle: a copy of the host's that reads nothing of the image in which it runs.

/** glibc's loader puts the libraries that this file names into every program. No option of the loader turns that off. */
const PRELOAD_FILE = Buffer.from('/etc/ld.so.preload\0');

/**
 * The loader without its preload file: the file's name in it becomes empty, and an empty name is never found. Only this copy changes;
 * programs of the image use the image's own loader. Throws if the loader does not contain the name.
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
