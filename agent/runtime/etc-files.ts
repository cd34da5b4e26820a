// Makes read-only /etc/hosts, /etc/hostname and /etc/resolv.conf for a container. The engine's own versions are writable and lie on
// the host's disk, outside the container's disk size: a tenant could fill the host's disk through them.
import { join } from 'node:path';
import { writeFileSafely } from '../host/state.ts';
import type { Mount } from './engine.ts';

/** Docker's DNS server, in every network except its default one. */
const ENGINE_RESOLVER = '127.0.0.11';

/** Writes the files below `folder`. Each container needs its own folder, because the engine may write to mounted files. */
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
