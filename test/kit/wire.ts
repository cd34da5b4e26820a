// Checks that what the control plane means to send is what the wire allows.
import { type DesiredMessage, ServerMessage } from '../../shared/protocol/link.ts';

/** The message as the agent would decode it. */
export function overTheWire(message: DesiredMessage): DesiredMessage {
  const decoded = ServerMessage.parse(JSON.parse(JSON.stringify(message)));
  if (decoded.type !== 'desired') throw new Error(`a ${decoded.type} came out`);
  return decoded;
}
