// The name servers that containers of this host ask: those of the host's own files, as Docker Engine reads them.
import { readFile } from 'node:fs/promises';
import { z } from 'zod';

/** resolv.conf names a stub on loopback where systemd-resolved runs; the engine then takes the servers behind it. */
const RESOLV_CONFS = ['/etc/resolv.conf', '/run/systemd/resolve/resolv.conf'];
const ENGINE_CONFIG = '/etc/docker/daemon.json';
const EngineDns = z.looseObject({ dns: z.array(z.string()).default([]) });

/** Addresses, also such that no container asks; a file that is absent or unreadable names none. */
export async function readResolvers(): Promise<string[]> {
  const read = (file: string): Promise<string> => readFile(file, 'utf8').catch(() => '');
  const [engineConfig, ...confs] = await Promise.all([ENGINE_CONFIG, ...RESOLV_CONFS].map(read));
  return [...confs.flatMap(nameServersOf), ...engineDnsOf(engineConfig ?? '')];
}

/** The `nameserver` lines of a resolv.conf. */
export function nameServersOf(resolvConf: string): string[] {
  return [...resolvConf.matchAll(/^\s*nameserver\s+(\S+)/gm)].flatMap(([, address]) => address ?? []);
}

/** What daemon.json hands to containers in place of the host's. */
export function engineDnsOf(daemonJson: string): string[] {
  try {
    return EngineDns.parse(JSON.parse(daemonJson)).dns;
  } catch {
    return [];
  }
}
