// Bytes that arrive piece by piece and are kept until enough of them are there. Each kept piece costs some hundred bytes of memory beside its
// own, and a sender can cut what it sends into pieces of one byte. So small pieces are copied together.

export interface Pieces {
  add(piece: Uint8Array): void;
  /** The number of bytes so far. */
  readonly bytes: number;
  /** All bytes so far, in order. */
  list(): Uint8Array<ArrayBuffer>[];
}

/** A piece below this size is copied. */
const SMALL_BYTES = 2_048;
const BLOCK_BYTES = 8_192;

export function openPieces(): Pieces {
  const kept: Uint8Array<ArrayBuffer>[] = [];
  let block: Uint8Array<ArrayBuffer> | undefined;
  let used = 0;
  let bytes = 0;
  const closeBlock = (): void => {
    if (block !== undefined) kept.push(block.subarray(0, used));
    block = undefined;
    used = 0;
  };
  return {
    get bytes() {
      return bytes;
    },
    add: (piece) => {
      const isFirst = bytes === 0;
      bytes += piece.length;
      // Most of what arrives comes in one piece.
      if (isFirst || piece.length >= SMALL_BYTES) {
        closeBlock();
        kept.push(piece as Uint8Array<ArrayBuffer>);
        return;
      }
      if (used + piece.length > BLOCK_BYTES) closeBlock();
      block ??= new Uint8Array(BLOCK_BYTES);
      block.set(piece, used);
      used += piece.length;
    },
    list: () => (block === undefined ? [...kept] : [...kept, block.subarray(0, used)]),
  };
}
