// A shared library whose initializer never returns: whoever loads it stays in the attacker's hands. Written byte by byte, so that no
// compiler is needed.

/** Endless: `pause(2)` again and again, so that a test costs no processor. */
const CODE: Partial<Record<NodeJS.Architecture, { machine: number; code: Buffer }>> = {
  // mov eax, 34; syscall; jmp back
  x64: { machine: 62, code: Buffer.from('b8220000000f05ebf7', 'hex') },
  // wfe; b back
  arm64: { machine: 183, code: Buffer.from('5f2003d5ffffff17', 'hex') },
};

const HEADER_BYTES = 64;
const PROGRAM_HEADER_BYTES = 56;
const DYNAMIC_AT = HEADER_BYTES + 2 * PROGRAM_HEADER_BYTES;
/** Tags of the dynamic section (elf.h). */
const DT = { null: 0, hash: 4, strtab: 5, symtab: 6, strsz: 10, syment: 11, init: 12 };
const SYMBOL_BYTES = 24;
const TAG_BYTES = 16;
const TAGS = Object.keys(DT).length;

/** An ELF file for this machine's processor with one symbol, which has no name. */
export function stuckLibrary(): Buffer {
  const made = CODE[process.arch];
  if (made === undefined) throw new Error(`the attack has no code for ${process.arch}`);
  const symbolsAt = DYNAMIC_AT + TAGS * TAG_BYTES;
  const hashAt = symbolsAt + SYMBOL_BYTES;
  const stringsAt = hashAt + 16;
  const codeAt = stringsAt + 8;
  const file = Buffer.alloc(codeAt + made.code.length);
  // 64 bit, little endian; a shared object.
  Buffer.from('7f454c46020101', 'hex').copy(file);
  file.writeUInt16LE(3, 16);
  file.writeUInt16LE(made.machine, 18);
  file.writeUInt32LE(1, 20);
  file.writeBigUInt64LE(BigInt(HEADER_BYTES), 32);
  file.writeUInt16LE(HEADER_BYTES, 52);
  file.writeUInt16LE(PROGRAM_HEADER_BYTES, 54);
  file.writeUInt16LE(2, 56);
  programHeader(file, HEADER_BYTES, { type: 1, at: 0, bytes: file.length });
  programHeader(file, HEADER_BYTES + PROGRAM_HEADER_BYTES, { type: 2, at: DYNAMIC_AT, bytes: TAGS * TAG_BYTES });
  const tags: [number, number][] = [
    [DT.hash, hashAt],
    [DT.strtab, stringsAt],
    [DT.symtab, symbolsAt],
    [DT.strsz, 1],
    [DT.syment, SYMBOL_BYTES],
    [DT.init, codeAt],
    [DT.null, 0],
  ];
  for (const [i, [tag, value]] of tags.entries()) {
    file.writeBigUInt64LE(BigInt(tag), DYNAMIC_AT + i * TAG_BYTES);
    file.writeBigUInt64LE(BigInt(value), DYNAMIC_AT + i * TAG_BYTES + 8);
  }
  // A hash table of one bucket and one symbol.
  file.writeUInt32LE(1, hashAt);
  file.writeUInt32LE(1, hashAt + 4);
  made.code.copy(file, codeAt);
  return file;
}

/** One segment that may be read, written and run. */
function programHeader(file: Buffer, at: number, segment: { type: number; at: number; bytes: number }): void {
  file.writeUInt32LE(segment.type, at);
  file.writeUInt32LE(7, at + 4);
  for (const field of [8, 16, 24]) file.writeBigUInt64LE(BigInt(segment.at), at + field);
  for (const field of [32, 40]) file.writeBigUInt64LE(BigInt(segment.bytes), at + field);
  file.writeBigUInt64LE(4096n, at + 48);
}
