// Forms are streamed: the parser reads no further than its reader, and stops if the reader throws.
import { Readable } from 'node:stream';
import { describe, expect, test } from 'vitest';
import { type FormFile, readForm } from '../../../../control-plane/base/http/multipart.ts';
import { ServiceError } from '../../../../shared/errors.ts';

const PIECE = 64 * 1024;
const HEAD = '--x\r\nContent-Disposition: form-data; name="file"; filename="a.bin"\r\n\r\n';
const TAIL = '\r\n--x\r\nContent-Disposition: form-data; name="purpose"\r\n\r\nfine-tune\r\n--x--\r\n';

/** A form whose file has `pieces` of 64 KiB. Also counts how many bytes of it were requested. */
function formOf(pieces: number, tail = TAIL): { stream: Readable; taken(): number } {
  let taken = 0;
  function* parts(): Generator<Buffer> {
    yield Buffer.from(HEAD);
    for (let i = 0; i < pieces; i += 1) {
      taken += PIECE;
      yield Buffer.alloc(PIECE, i);
    }
    yield Buffer.from(tail);
  }
  return { stream: Readable.from(parts(), { objectMode: false, highWaterMark: PIECE }), taken: () => taken };
}
const read = (stream: Readable, file: (file: FormFile) => Promise<void>): Promise<[string, string][]> => {
  const fields: [string, string][] = [];
  const body = { contentType: 'multipart/form-data; boundary=x', bytes: undefined, stream };
  const reader = { file, field: (name: string, value: string) => void fields.push([name, value]) };
  return readForm(body, reader).then(() => fields);
};
const countOf = async ({ stream }: FormFile): Promise<number> => {
  let count = 0;
  for await (const piece of stream) count += (piece as Buffer).length;
  return count;
};
const turns = async (count: number): Promise<void> => {
  for (let i = 0; i < count; i += 1) await new Promise((resolve) => setImmediate(resolve));
};

test('the file is read to its end, then the fields after it', async () => {
  const form = formOf(100);
  let count = 0;
  const fields = await read(form.stream, async (file) => {
    expect([file.name, file.filename]).toEqual(['file', 'a.bin']);
    count = await countOf(file);
  });
  expect(count).toBe(100 * PIECE);
  expect(fields).toEqual([['purpose', 'fine-tune']]);
});

test('a body whose sender has left before it is read is refused', async () => {
  const { stream } = formOf(1);
  stream.destroy(new Error('aborted')).once('error', () => undefined);
  await turns(2);
  await expect(read(stream, async (file) => void (await countOf(file)))).rejects.toThrow('connection ended');
});

test('while the reader waits, at most half a mebibyte is taken from the sender', async () => {
  const form = formOf(1_000);
  const waiting = Promise.withResolvers<void>();
  const reading = read(form.stream, async (file) => {
    await waiting.promise;
    await countOf(file);
  });
  await turns(200);
  expect(form.taken()).toBeGreaterThan(0);
  expect(form.taken()).toBeLessThanOrEqual(PIECE * 8);
  waiting.resolve();
  await reading;
  expect(form.taken()).toBe(1_000 * PIECE);
});

describe('reading stops', () => {
  test.each<[string, (file: FormFile) => Promise<void>]>([
    ['once its reader throws', async () => Promise.reject(new Error('enough'))],
    [
      'once its reader throws in the midst of the file',
      async ({ stream }) => {
        for await (const _piece of stream) throw new Error('enough');
      },
    ],
  ])('%s, and the caller gets that error', async (_what, file) => {
    const form = formOf(1_000);
    await expect(read(form.stream, file)).rejects.toThrow('enough');
    const taken = form.taken();
    await turns(50);
    expect(form.taken()).toBe(taken);
    expect(taken).toBeLessThanOrEqual(PIECE * 8);
    // The response still needs the connection.
    expect(form.stream.destroyed).toBe(false);
  });

  test('once a field is refused, although many more are in the same piece', async () => {
    const field = (i: number): string =>
      `--x\r\nContent-Disposition: form-data; name="f${i}"\r\n\r\n${'v'.repeat(2_048)}\r\n`;
    const form = `${Array.from({ length: 30 }, (_, i) => field(i)).join('')}--x--\r\n`;
    const seen: string[] = [];
    const reading = readForm(
      {
        contentType: 'multipart/form-data; boundary=x',
        bytes: form.length,
        stream: Readable.from([Buffer.from(form)]),
      },
      {
        field: (name) => {
          seen.push(name);
          throw new Error('enough');
        },
        file: async () => undefined,
      },
    );
    await expect(reading).rejects.toThrow('enough');
    await turns(10);
    expect(seen.length).toBeLessThanOrEqual(4);
  });

  test('if the sender disconnects, and the reader gets its error', async () => {
    const stream = new Readable({ read: () => undefined });
    stream.push(HEAD);
    stream.push('half of it');
    let thrown: unknown;
    const reading = read(stream, async (file) => {
      await countOf(file).catch((error: unknown) => {
        thrown = error;
        throw error;
      });
    });
    await turns(5);
    stream.destroy(new Error('reset'));
    await expect(reading).rejects.toThrow('reset');
    expect(thrown).toMatchObject({ message: 'reset' });
  });
});

test('a form that ends inside its file is reported as an error of the sender', async () => {
  const reading = read(formOf(2, '').stream, async (file) => void (await countOf(file)));
  const error: unknown = await reading.catch((thrown: unknown) => thrown);
  expect(error).toBeInstanceOf(ServiceError);
  expect(error).toMatchObject({ code: 'invalid_request' });
});
