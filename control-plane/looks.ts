// What rentals and the looks at them have to do with each other: probes, decoys, and what a verdict does to a rental.
import type { SshKeys } from './base/accounts/ssh-keys.ts';
import type { Query, Tx } from './base/db/db.ts';
import { type Decoys, openDecoys } from './rental/outages/decoys.ts';
import { type logIn, newProbeKey } from './rental/outages/probe.ts';
import { startSeries } from './rental/outages/store.ts';
import type { openWatch } from './rental/outages/watch.ts';
import type { InstancesDeps } from './rental/instances/instances.ts';
import { confirmOutage, endOutage, giveUp, noteReachable } from './rental/instances/outages.ts';
import type { InstanceRow } from './rental/instances/store.ts';
import type { Core, Rooms } from './rooms.ts';

export function decoysOf(
  core: Core,
  parts: Pick<Rooms, 'doors' | 'link' | 'supply' | 'sshKeys'> & { logIn: typeof logIn },
): Decoys {
  return openDecoys({
    ...core,
    ...parts,
    newKey: newProbeKey,
    keysOf: (query, instance) => sshKeysOf(parts.sshKeys, query, instance),
    accuse: parts.supply.accuse,
  });
}

/** A rental begins to run. */
export async function startLooks(
  tx: Tx,
  started: Parameters<InstancesDeps['onRunning']>[1],
  decoys: Pick<Decoys, 'start'>,
): Promise<void> {
  await startSeries(tx, started);
  await decoys.start(tx, started);
}

/** OpenSSH lines of the keys that a customer logs in with. */
export async function sshKeysOf(
  sshKeys: SshKeys,
  query: Query,
  { org_id: orgId, request }: InstanceRow,
): Promise<string[]> {
  return (await sshKeys.keysForOrg(query, orgId, request.ssh_key_ids ?? null)).map((key) => key.public_key);
}

export function outagesOf(rental: InstancesDeps): Parameters<typeof openWatch>[0]['outages'] {
  const { clock } = rental;
  return {
    seen: noteReachable,
    confirm: (tx, instance, sinceMs, evidence) =>
      confirmOutage(tx, instance, { sinceMs, nowMs: clock.now(), evidence }, rental),
    recover: (tx, instance, sinceMs) => endOutage(tx, instance, { sinceMs, nowMs: clock.now() }, rental),
    giveUp: (tx, instance, reason) => giveUp(tx, instance, { nowMs: clock.now(), reason }, rental),
  };
}
