// Writes files of the GGUF format, version 3, which llama.cpp loads: metadata first, then tensors of 32-bit floats.

/** A value of the metadata, with its type in the format. */
export interface GgufValue {
  type: number;
  bytes: Buffer;
}

export interface Tensor {
  name: string;
  /** The first dimension is the one whose values are next to each other. */
  shape: readonly number[];
  values: Float32Array;
}

const MAGIC = 'GGUF';
const VERSION = 3;
/** Each tensor begins at a multiple of it. */
const ALIGNMENT = 32;
const TYPE = { u32: 4, i32: 5, f32: 6, bool: 7, string: 8, array: 9 };
const TENSOR_OF_F32 = 0;

export const u32 = (value: number): GgufValue => ({ type: TYPE.u32, bytes: bytes32(value) });
export const i32 = (value: number): GgufValue => ({ type: TYPE.i32, bytes: Buffer.from(Int32Array.of(value).buffer) });
export const f32 = (value: number): GgufValue => ({
  type: TYPE.f32,
  bytes: Buffer.from(Float32Array.of(value).buffer),
});
export const bool = (value: boolean): GgufValue => ({ type: TYPE.bool, bytes: Buffer.of(value ? 1 : 0) });
export const text = (value: string): GgufValue => ({ type: TYPE.string, bytes: string(value) });

/** All of one type, and at least one. */
export function list(values: readonly GgufValue[]): GgufValue {
  const { type = 0 } = values[0] ?? {};
  return {
    type: TYPE.array,
    bytes: Buffer.concat([bytes32(type), bytes64(values.length), ...values.map(({ bytes }) => bytes)]),
  };
}

/** The bytes of a file. */
export function ggufFile(metadata: Record<string, GgufValue>, tensors: readonly Tensor[]): Buffer {
  const header = [
    Buffer.from(MAGIC),
    bytes32(VERSION),
    bytes64(tensors.length),
    bytes64(Object.keys(metadata).length),
    ...Object.entries(metadata).flatMap(([key, { type, bytes }]) => [string(key), bytes32(type), bytes]),
  ];
  const data: Buffer[] = [];
  let offset = 0;
  for (const { name, shape, values } of tensors) {
    const place = [...shape.map(bytes64), bytes32(TENSOR_OF_F32), bytes64(offset)];
    header.push(string(name), bytes32(shape.length), ...place);
    const aligned = padded(Buffer.from(values.buffer, values.byteOffset, values.byteLength));
    data.push(aligned);
    offset += aligned.length;
  }
  return Buffer.concat([padded(Buffer.concat(header)), ...data]);
}

function padded(bytes: Buffer): Buffer {
  const rest = bytes.length % ALIGNMENT;
  return rest === 0 ? bytes : Buffer.concat([bytes, Buffer.alloc(ALIGNMENT - rest)]);
}

function string(value: string): Buffer {
  const bytes = Buffer.from(value);
  return Buffer.concat([bytes64(bytes.length), bytes]);
}

function bytes32(value: number): Buffer {
  const bytes = Buffer.alloc(4);
  bytes.writeUInt32LE(value);
  return bytes;
}

function bytes64(value: number): Buffer {
  const bytes = Buffer.alloc(8);
  bytes.writeBigUInt64LE(BigInt(value));
  return bytes;
}
