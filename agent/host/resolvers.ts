// Reads the name servers that containers of this host use: those of the host's own files, as Docker Engine reads them.
import { readFile } from 'node:fs/promises';
import { z } from 'zod';

/** If systemd-resolved runs, the first file names only a stub on loopback, and the engine uses the servers of the second file. */
const RESOLV_CONFS = ['/etc/resolv.conf', '/run/systemd/resolve/resolv.conf'];
const ENGINE_CONFIG = '/etc/docker/daemon.json';
const EngineDns = z.looseObject({ dns: z.array(z.string()).default([]) });

/** All addresses, including those that no container can use. A missing or unreadable file counts as empty. */
export async function readResolvers(): Promise<string[]> {
  const read = (file: string): Promise<string> => readFile(file, 'utf8').catch(() => '');
  const [engineConfig, ...confs] = await Promise.all([ENGINE_CONFIG, ...RESOLV_CONFS].map(read));
  return [...confs.flatMap(nameServersOf), ...engineDnsOf(engineConfig ?? '')];
}

/** The `nameserver` lines of a resolv.conf. */
export function nameServersOf(resolvConf: string): string[] {
  return [...resolvConf.matchAll(/^\s*nameserver\s+(\S+)/gm)].flatMap(([, address]) => address ?? []);
}

/** The name servers that daemon.json sets for containers instead of the host's. */
export function engineDnsOf(daemonJson: string): string[] {
  try {
    return EngineDns.parse(JSON.parse(daemonJson)).dns;
  } catch {
    return [];
  }
}
