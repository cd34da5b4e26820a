// How one control plane asks another one for a stream into a workload. `peer-streams.ts` asks, and `peer-streams-listener.ts` answers.
//
// Only the primary has links to hosts, so a secondary asks it for every stream. Example: somebody opens an SSH connection to the instance `inst_1`,
// and the connection reaches a secondary.
//
//   secondary                                        primary                                      host
//     | --- GET /peer/v1/streams, sealed request ---> |                                             |
//     |                                               |  opens the seal, looks at its time and id   |
//     |                                               | --- `openStream` of link.ts --------------> |
//     | <---- 101, or 502 with the leg that failed -- | <-------------------------- dials back ---- |
//     | <=================== both directions of the stream, spliced ==============================> |
//
// The request is in the Authorization header. Before it is sealed, it reads:
//
//   {"id": "kq3...", "at_ms": 1790000000000, "asks": {"instance_id": "inst_1", "app_port": null, "client_ip": "192.0.2.1"}}
//
// It is sealed with the secret that the control planes of one database share. Nobody else can ask. A sealed request can be copied by who reads the
// network, so it is valid for a minute, for one process and for one stream.
//
// After the 101, each end speaks the stream wire of shared/protocol/stream.ts, as hosts do. Bare bytes would not do: the connection of a primary
// that is killed ends like that of a stream that is complete, so half an answer would look whole.
//
// What must never happen: a stranger opens a stream, or costs more than one attempt to open a seal; one side of a stream ends and the other stays;
// a client that has left keeps a connection to the primary.
import type { Socket } from 'node:net';
import type { Duplex } from 'node:stream';
import { z } from 'zod';
import { parseJson } from '../../../shared/json.ts';
import { HEADER_BYTES_MAX, TCP_KEEP_ALIVE_MS } from '../../../shared/limits.ts';
import { OpenTarget } from '../../../shared/protocol/link.ts';
import { type StreamEnd, streamDuplex } from '../../../shared/protocol/stream.ts';
import type { Sealing } from '../../base/http/sealing.ts';

/** Path of the primary at which other control planes open streams. */
export const PEER_STREAMS_PATH = '/peer/v1/streams';
/** What both sides name in their `Upgrade` header. */
export const PEER_PROTOCOL = 'svc-stream';
/** What stands before the sealed request in the Authorization header. */
export const SCHEME = 'Bearer ';

/** Longest sealed request. The other headers have some hundred bytes. */
export const SEALED_CHARS_MAX = HEADER_BYTES_MAX - 1024;
/** Most names and values of a request or a refusal. */
export const VALUES_MAX = 1_000;
/** The largest difference between the time of a request and the clock of the primary. */
export const AGE_MS_MAX = 60_000;

/** A connection to a public port of an instance. The primary reads who may log in: the keys could be too long for a request. */
const PeerPort = z.strictObject({
  instance_id: z.string(),
  /** The port of the application; null: SSH. */
  app_port: z.int().nullable(),
  client_ip: z.string(),
});
export type PeerPort = z.infer<typeof PeerPort>;

/** A target in a workload on a machine, as `openStream` of a link takes it. */
const PeerTarget = z.strictObject({ machine_id: z.string(), workload_id: z.string(), target: OpenTarget });

const PeerRequest = z.strictObject({
  /** New for each request. */
  id: z.string().max(64),
  /** Time of the request, on the clock of the control plane that asks. */
  at_ms: z.int(),
  asks: z.union([PeerTarget, PeerPort]),
});
export type PeerRequest = z.infer<typeof PeerRequest>;

/** The body of a 502: the leg that failed, and why. */
export const PeerRefusal = z.object({ leg: z.enum(['link', 'dial', 'refused']), detail: z.string() });
export type PeerRefusal = z.infer<typeof PeerRefusal>;

/** Seals a request for the control plane with the id `to`. Nobody else can open it. */
export function sealRequest(sealing: Sealing, to: string, request: PeerRequest): string {
  return sealing.seal(placeOf(to), JSON.stringify(request));
}

/** Opens a request that was sealed for the control plane with the id `own`. @throws Error if it was not */
export function openRequest(sealing: Sealing, own: string, sealed: string): PeerRequest {
  return PeerRequest.parse(parseJson(sealing.open(placeOf(own), sealed), VALUES_MAX));
}

function placeOf(id: string): string {
  return `peer/stream/${id}`;
}

/** The stream over a connection after its 101. */
export function streamOver(socket: Socket, end: StreamEnd): Duplex {
  socket.setNoDelay(true);
  // The streams send no pings. A control plane without power would leave them open for ever.
  socket.setKeepAlive(true, TCP_KEEP_ALIVE_MS);
  return streamDuplex(socket, end);
}
