// A machine without Node and without this checkout, as a supplier's is: the same machine with both out of sight of one program.
import { resolve } from 'node:path';

const CHECKOUT = resolve(import.meta.dirname, '../..');

/** Mounts of its own: an empty folder over the checkout, and nothing in the place of every Node. */
const HIDE = `
mount -t tmpfs tmpfs "$1"
shift
for folder in /usr/local/bin /usr/bin /bin; do
  for name in node nodejs npm npx; do
    if [ -e "$folder/$name" ]; then mount --bind /dev/null "$folder/$name"; fi
  done
done
exec "$@"
`;

/** The command line that runs a program there; `programs` is a folder in front of its PATH. Needs root. */
export function withoutNode(argv: readonly string[], programs?: string): string[] {
  const path = [...(programs === undefined ? [] : [programs]), '/usr/sbin', '/usr/bin', '/sbin', '/bin'].join(':');
  return ['unshare', '--mount', '--', 'env', `PATH=${path}`, 'sh', '-euc', HIDE, 'sh', CHECKOUT, ...argv];
}
