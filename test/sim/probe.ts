// One login of the probe over the link to the holder, as far as it comes.
import { findInstance } from '../../control-plane/rental/instances/store.ts';
import type { ProbeResult } from '../../control-plane/rental/instances/steps.ts';
import { PROBE_MS_MAX } from '../../control-plane/rental/outages/probe.ts';
import type { SimHost } from './host.ts';
import type { Life } from './life.ts';
import type { Plane } from './plane.ts';

export async function probeFromOutside(
  instanceId: string,
  { plane, life, hosts }: { plane: Plane; life: Life; hosts: readonly SimHost[] },
): Promise<ProbeResult> {
  const { rooms, core } = plane.world();
  const instance = await findInstance(core.db.read, instanceId);
  const host = hosts.find(({ machineId }) => machineId === instance?.machine_id);
  if (host === undefined || instance?.workload_id == null) return { ok: false, leg: 'run', detail: 'it has no host' };
  if (!rooms.link.isUp(host.machineId)) return { ok: false, leg: 'link', detail: 'the host is not connected' };
  await life.clock.sleep(2 * host.path.delayMs());
  if (host.answersFor(instance.workload_id) && (!host.isCopied() || host.isLinked())) return { ok: true };
  if (host.path.isOpen()) return { ok: false, leg: 'refused', detail: 'this workload has no endpoint here' };
  await life.clock.sleep(PROBE_MS_MAX);
  return { ok: false, leg: 'stream', detail: 'stream: no answer within 5 s' };
}
