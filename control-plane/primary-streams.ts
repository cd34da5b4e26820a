// Gives streams into workloads: from a link of this process if it is the primary, and through the primary otherwise.
import type { Duplex } from 'node:stream';
import type { Peer } from './base/http/peers.ts';
import type { Link } from './fleet/link/link.ts';
import { openPeerStreams } from './fleet/link/peer-streams.ts';
import type { PeerPort } from './fleet/link/peer-wire.ts';
import type { Foundation } from './foundation.ts';
import type { PortStreams } from './rental/edge/port-streams.ts';
import type { Core } from './settings.ts';

export interface PrimaryStreams {
  /** @throws StreamError as that of `Link` */
  openStream: Link['openStream'];
  /** The streams of public ports. `own` has those to hosts that are linked to this process. */
  portsThrough(own: PortStreams): PortStreams;
}

export function openPrimaryStreams(
  primary: Foundation['primary'],
  core: Pick<Core, 'clock' | 'ids' | 'sealing'>,
  link: () => Link,
): PrimaryStreams {
  const other = (): Peer | undefined => {
    const now = primary();
    return typeof now === 'string' ? undefined : now;
  };
  const peers = openPeerStreams({ ...core, primary: other });
  const isPrimary = (): boolean => primary() === 'self';
  return {
    openStream: (...stream) => (isPrimary() ? link().openStream(...stream) : peers.openStream(...stream)),
    portsThrough: (own) => ({
      ask: async (target, client) => {
        if (isPrimary()) return own.ask(target, client);
        const { instanceId, appPort } = target;
        const port = { instance_id: instanceId, app_port: appPort, client_ip: client.ip };
        return { stream: peers.openPort(port, client.gone) };
      },
    }),
  };
}

/** Opens the ports that other control planes ask for. Resolves with undefined if nobody may connect, or if the client has left. */
export function portOpener(own: PortStreams): (port: PeerPort, gone: AbortSignal) => Promise<Duplex | undefined> {
  return async ({ instance_id: instanceId, app_port: appPort, client_ip: ip }, gone) => {
    const asked = await own.ask({ instanceId, appPort }, { ip, gone });
    return asked?.stream;
  };
}
