// How a secondary knows that an answer comes from the primary of its database, and not from another server at its address.
//
//   secondary                                                     primary
//     | --- Svc-Passed-On: a word, sealed for the id of the primary ---> |  opens it
//     | <----------------------------- Svc-Opened: the word ----------- |
//
// The control planes of one database share a secret, and each process has an id. Nobody else can open the seal: no other server, no other
// installation, and no copy of the installation with the same secret. Such a copy refuses the request, because it was meant for another process.
//
// A request or a stream that goes on ends once another control plane is the primary (`breakIfReplaced`).
//
// A word is made once for each primary, and the primary opens it at each request, which takes it some microseconds. The word is no secret from who
// reads the network between them. Only TLS keeps a server out that has been put there to deceive.
import type { IncomingHttpHeaders } from 'node:http';
import type { Clock } from '../../../shared/clock.ts';
import type { Ids } from '../../../shared/ids.ts';
import type { Sealing } from './sealing.ts';

/** Marks a request that was passed on. It is not passed on again, because two control planes may take each other for the primary. */
export const PASSED_ON = 'svc-passed-on';
/** The header of the answer that has the opened word. It must not reach a client. */
export const OPENED = 'svc-opened';

/** More than the headers that a secondary adds to a request, which have some hundred bytes. */
export const ADDED_BYTES_MAX = 1024;

const WORD_BYTES = 16;

/** Another control plane: the id of its process, and the origin at which it is reached (`http://10.0.0.1:8080`). */
export interface Peer {
  id: string;
  url: string;
}

/** What a secondary says to the control plane with one id, and what it must hear. */
export interface Question {
  sealed: string;
  word: string;
}

export interface Peers {
  questionTo(id: string): Question;
  /** The word of a request that was passed on to this process; undefined for every other request. */
  wordIn(headers: IncomingHttpHeaders): string | undefined;
}

interface PeersDeps {
  /** The id of this process; undefined: nothing is passed on to it. */
  id: string | undefined;
  /** Needed if something is passed on to this process, or by it. */
  sealing: Sealing | undefined;
  ids: Ids;
}

export function openPeers({ id: own, sealing, ids }: PeersDeps): Peers {
  let asked: (Question & { id: string }) | undefined;
  return {
    questionTo: (id) => {
      if (asked?.id === id) return asked;
      if (sealing === undefined) throw new Error('requests are passed on by a listener without a sealing');
      const word = ids.secret(WORD_BYTES);
      return (asked = { id, word, sealed: sealing.seal(placeOf(id), word) });
    },
    wordIn: ({ [PASSED_ON]: sealed }) => {
      if (typeof sealed !== 'string' || own === undefined || sealing === undefined) return undefined;
      try {
        return sealing.open(placeOf(own), sealed);
      } catch {
        return undefined;
      }
    },
  };
}

/** How often what goes on with the primary looks whether that still is the primary. */
const LOOK_MS = 5_000;

/** A request or a stream that goes on with the primary. */
interface Going {
  destroyed: boolean;
  destroy(error: Error): void;
  once(event: 'close', fn: () => void): void;
}

/** Breaks what goes on with a primary once another one has its place. A primary that stops ends it before. One whose machine hangs never would. */
export function breakIfReplaced(going: Going, isPrimary: () => boolean, clock: Pick<Clock, 'after'>): void {
  const look = (): void => {
    if (isPrimary()) cancel = clock.after(LOOK_MS, look);
    else going.destroy(new Error('it is not the primary any more'));
  };
  // The first bytes of a stream may have broken it, and its `close` does not come again.
  if (going.destroyed) return;
  let cancel = clock.after(LOOK_MS, look);
  going.once('close', () => cancel());
}

export function isOpened(headers: NodeJS.Dict<string | string[]>, { word }: Question): boolean {
  return headers[OPENED] === word;
}

function placeOf(id: string): string {
  return `peer/passed-on/${id}`;
}
