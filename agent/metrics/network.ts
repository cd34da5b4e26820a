// Reads the counters of network interfaces from /proc/net/dev.

/** Names of the host's interfaces to other machines. Other interfaces, such as bridges, would count the same bytes again. */
const PHYSICAL = /^(en|eth|ib|wl|ww|bond)/;

interface Bytes {
  network_received_bytes: number;
  network_sent_bytes: number;
}

/** Sum of all interfaces without loopback, for a container. If `onlyPhysical`: sum of the interfaces to other machines, for a host. */
export function networkBytes(text: string, { onlyPhysical = false } = {}): Bytes {
  let [received, sent] = [0, 0];
  for (const line of text.split('\n')) {
    const [name = '', counters] = line.split(':').map((part) => part.trim());
    if (counters === undefined) continue;
    if (name === 'lo' || (onlyPhysical && !PHYSICAL.test(name))) continue;
    const numbers = counters.split(/\s+/).map(Number);
    received += numbers[0] ?? 0;
    sent += numbers[8] ?? 0;
  }
  return { network_received_bytes: received, network_sent_bytes: sent };
}
