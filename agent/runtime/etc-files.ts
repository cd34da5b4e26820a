// Three files of /etc that an engine mounts into each container from its own data folder, writable, and outside the container's disk: a tenant
// could fill the host's disk through them. Ours are in their place: small, and read-only.
import { join } from 'node:path';
import { writeFileSafely } from '../host/state.ts';
import type { Mount } from './engine.ts';

/** The engine answers questions about names here, in every network that it did not make by itself. */
const ENGINE_RESOLVER = '127.0.0.11';

/** Writes them below `folder`, which is one container's own: an engine may write to what it finds mounted there. */
export async function makeEtcFiles(folder: string, hostname: string): Promise<Mount[]> {
  const files = {
    // The container's address is not known before it starts.
    hosts: `127.0.0.1 localhost\n::1 localhost ip6-localhost ip6-loopback\n127.0.1.1 ${hostname}\n`,
    hostname: `${hostname}\n`,
    'resolv.conf': `nameserver ${ENGINE_RESOLVER}\noptions ndots:0\n`,
  };
  const mounts: Mount[] = [];
  for (const [name, text] of Object.entries(files)) {
    const source = join(folder, 'etc', name);
    await writeFileSafely(source, text, 0o644);
    mounts.push({ source, target: `/etc/${name}` });
  }
  return mounts;
}
