// Keeps the last bytes of a stream. Each byte is addressed by its offset in the whole stream (its place).

export interface Ring {
  /** Place of the oldest byte that is still kept. */
  start(): number;
  /** Place of the next byte to come. */
  end(): number;
  append(bytes: Uint8Array): void;
  /** All bytes from `place` on, which must not be before the start. */
  from(place: number): Buffer;
}

export function createRing(bytesMax: number): Ring {
  const bytes = Buffer.alloc(bytesMax);
  let end = 0;
  const start = (): number => Math.max(0, end - bytesMax);
  return {
    start,
    end: () => end,
    append: (chunk) => {
      const kept = chunk.subarray(-bytesMax);
      const at = (end + chunk.length - kept.length) % bytesMax;
      const first = kept.subarray(0, bytesMax - at);
      bytes.set(first, at);
      bytes.set(kept.subarray(first.length), 0);
      end += chunk.length;
    },
    from: (place) => {
      const [at, length] = [place % bytesMax, end - place];
      return Buffer.concat([bytes.subarray(at, at + length), bytes.subarray(0, Math.max(0, at + length - bytesMax))]);
    },
  };
}
