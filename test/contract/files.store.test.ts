// /v1/files (specification 2.15, 4.9, 5): uploads in any order of their parts, limits at both edges, lists, content, and whose they are.
import { createHash } from 'node:crypto';
import { readdirSync, existsSync } from 'node:fs';
import { Readable } from 'node:stream';
import { describe, expect, test } from 'vitest';
import { FileList, FileObject, type FileReport } from '../../shared/api/file.ts';
import { fail } from '../../shared/errors.ts';
import { BODY_BYTES_MAX, FILES_PER_ORG_MAX, FORM_PARTS_MAX } from '../../shared/limits.ts';
import { deleteFile, findFile, insertFile } from '../../control-plane/models/files/store.ts';
import type { z } from 'zod';
import type { Answer } from './api.ts';
import { api, openApiForEachTest, owner } from './api-of-test.ts';
import { formOf, type FormPart, postForm, trainingLines, uploadForm } from './forms.ts';
import { expectRefused } from './refusals.ts';

const PATH = '/v1/files';
const FILE_BYTES_MAX = 20_000;
const ORG_BYTES_MAX = 50_000;
const GOOD = trainingLines(10);

openApiForEachTest(() => ({ settings: { fileBytesMax: FILE_BYTES_MAX, fileBytesPerOrg: ORG_BYTES_MAX } }));

const send = (parts: readonly FormPart[], contentType?: string): Promise<Answer> =>
  postForm(api, owner, parts, contentType);
const get = (path: string, headers: Record<string, string> = {}): Promise<Answer> =>
  api.call('GET', `${PATH}${path}`, { key: owner.key, headers });
async function uploaded(content = GOOD, filename?: string): Promise<FileObject> {
  const answer = await send(uploadForm(content, filename));
  expect(answer.status).toBe(200);
  return FileObject.parse(answer.json);
}
const listed = async (query = ''): Promise<z.infer<typeof FileList>> => FileList.parse((await get(query)).json);
const blobsOnDisk = (): string[] => {
  const { blobsDirectory: directory } = api.world;
  if (!existsSync(directory)) return [];
  return readdirSync(directory, { recursive: true, withFileTypes: true })
    .filter((entry) => entry.isFile())
    .map(({ name }) => name);
};
async function* readThen(source: AsyncIterable<Uint8Array>, act: () => void): AsyncGenerator<Uint8Array> {
  yield* source;
  act();
}
const upwards = (a: number, b: number): number => a - b;
const ofBytes = (bytes: number): string => `${GOOD}${' '.repeat(bytes - GOOD.length)}`;

describe('an upload', () => {
  // Specification 2.15: FileObject has id, object, bytes, created_at in Unix seconds, filename and purpose; the storage location is not exposed.
  test('makes a file with the members of the specification, and does not show where it is stored', async () => {
    const answer = await send(uploadForm(GOOD));
    expect(answer.status).toBe(200);
    expect(answer.json).toEqual({
      id: expect.stringMatching(/^file_[0-9a-z]{26}$/) as string,
      object: 'file',
      bytes: GOOD.length,
      created_at: Math.floor(api.world.clock.now() / 1000),
      filename: 'train.jsonl',
      purpose: 'fine-tune',
      status: 'processed',
    });
    expect(await get(`/${String(answer.json['id'])}`)).toMatchObject({ status: 200, json: answer.json });
    expect(answer.body).not.toContain('blob');
  });

  test('may name its purpose before the file', async () => {
    expect((await send(uploadForm(GOOD).toReversed())).status).toBe(200);
  });

  test('is stored byte by byte, with its SHA-256', async () => {
    const { id } = await uploaded();
    const content = await get(`/${id}/content`);
    expect(content.body).toBe(GOOD);
    expect(content.headers).toMatchObject({
      'content-type': 'application/octet-stream',
      'content-length': String(GOOD.length),
    });
    const row = await findFile(api.world.db.read, owner.orgId, id);
    expect(row?.sha256).toBe(createHash('sha256').update(GOOD).digest('hex'));
  });

  test('keeps any name, without the folders before it', async () => {
    const { filename, id } = await uploaded(GOOD, "C:\\data\\../Größe (1)'s.jsonl");
    expect(filename).toBe("Größe (1)'s.jsonl");
    const { headers } = await get(`/${id}/content`);
    expect(headers['content-disposition']).toBe("attachment; filename*=UTF-8''Gr%C3%B6%C3%9Fe%20%281%29%27s.jsonl");
    expect((await uploaded(GOOD, 'n'.repeat(255))).filename).toHaveLength(255);
    expectRefused(PATH, await send(uploadForm(GOOD, 'n'.repeat(256))), 'validation_failed');
  });

  test('is stored with the status error if it cannot serve for training, and its report names the lines', async () => {
    const file = await uploaded(`${GOOD}{}\n[]\n`);
    expect(file).toMatchObject({
      status: 'error',
      status_details: expect.stringMatching(/^Line 11: .*messages/) as string,
    });
    const report = (await get(`/${file.id}/report`)).json as z.infer<typeof FileReport>;
    expect(report).toEqual({
      object: 'file.report',
      file_id: file.id,
      valid: false,
      examples: 10,
      estimated_tokens: expect.any(Number) as number,
      problems_found: 2,
      problems: [
        { line: 11, rule: 'missing_messages', message: expect.any(String) as string },
        { line: 12, rule: 'not_an_object', message: expect.any(String) as string },
      ],
      repeated_examples: 0,
    });
    expect((await uploaded(trainingLines(9))).status_details).toBe(
      'The file has 9 valid example(s), and must have at least 10.',
    );
  });
});

describe('a refused upload', () => {
  const file = uploadForm(GOOD)[0] as FormPart;
  const purpose = uploadForm(GOOD)[1] as FormPart;
  // Specification 2.15: The purpose of a file is fine-tune.
  test.each<[string, FormPart[], string]>([
    ['without a file', [purpose], 'file'],
    ['without a purpose', [file], 'purpose'],
    ['for another purpose', [file, { ...purpose, value: 'assistants' }], 'purpose'],
    ['for another purpose, named first', [{ ...purpose, value: 'batch' }, file], 'purpose'],
    ['with a text in place of the file', [{ name: 'file', value: GOOD }, purpose], 'file'],
    ['with two files', [file, file, purpose], 'file'],
    ['with a file of nothing', [{ ...file, value: '' }, purpose], 'file'],
    ['with a file without a name', [{ ...file, filename: '' }, purpose], 'file'],
    ['with a name of control characters', [{ ...file, filename: 'a\u0001b' }, purpose], 'file'],
  ])('%s is 422, names the field, and leaves nothing', async (_what, parts, field) => {
    expect(expectRefused(PATH, await send(parts), 'validation_failed').fields).toEqual([field]);
    expect([blobsOnDisk(), (await listed()).data]).toEqual([[], []]);
  });

  test.each(['expires_after[anchor]', '__proto__', ''])(
    'with the unknown field %j is refused by that name, and leaves nothing',
    async (name) => {
      const answer = await send([...uploadForm(GOOD), { name, value: 'x' }]);
      expect(expectRefused(PATH, answer, 'unsupported_parameter').fields).toEqual([name]);
      expect(blobsOnDisk()).toEqual([]);
    },
  );

  test.each(['application/json', 'application/x-www-form-urlencoded', 'text/plain', ''])(
    'with the content type %j is 415',
    async (contentType) => {
      expect(expectRefused(PATH, await send([], contentType), 'unsupported_media_type').text).toContain(
        'multipart/form-data',
      );
    },
  );

  test('with a form that cannot be read is 400 and leaves nothing', async () => {
    const bad = [
      await send(uploadForm(GOOD), 'multipart/form-data'),
      await send(uploadForm(GOOD), 'multipart/form-data; boundary=another'),
      await send([...uploadForm(GOOD), { name: 'purpose', value: 'x'.repeat(BODY_BYTES_MAX + 1) }]),
      await send(Array.from({ length: FORM_PARTS_MAX + 1 }, () => purpose)),
    ];
    for (const answer of bad) expectRefused(PATH, answer, 'invalid_request');
    expect(blobsOnDisk()).toEqual([]);
  });

  test('with a body that ends within the file or before its last delimiter is 400 and leaves nothing', async () => {
    const { http } = api;
    const text = `--x\r\nContent-Disposition: form-data; name="file"; filename="a"\r\n\r\n${GOOD}`;
    const headers = { authorization: `Bearer ${owner.key}`, 'content-type': 'multipart/form-data; boundary=x' };
    for (const payload of [text, `${text}\r\n--x\r\n`, '', '--x']) {
      const reply = await http.inject({ method: 'POST', url: PATH, headers, payload });
      expect([reply.status, JSON.parse(reply.body)]).toMatchObject([400, { error: { code: 'invalid_request_error' } }]);
    }
    expect(blobsOnDisk()).toEqual([]);
  });
});

describe('limits', () => {
  test('a file of the maximum size is accepted; one byte more is 413, counted while it arrives, and leaves nothing', async () => {
    expect((await uploaded(ofBytes(FILE_BYTES_MAX))).bytes).toBe(FILE_BYTES_MAX);
    const refused = expectRefused(PATH, await send(uploadForm(ofBytes(FILE_BYTES_MAX + 1))), 'body_too_large');
    expect(refused).toMatchObject({
      code: 'request_too_large',
      text: expect.stringContaining('20000 bytes') as string,
    });
    expect(blobsOnDisk()).toHaveLength(1);
  });

  test('a body with too large a Content-Length is refused before it is read', async () => {
    const reply = await api.http.inject({
      method: 'POST',
      url: PATH,
      headers: {
        authorization: `Bearer ${owner.key}`,
        'content-type': 'multipart/form-data; boundary=x',
        'content-length': '1000000000',
      },
      payload: '',
    });
    expect(reply.status).toBe(413);
  });

  test('the files of an organisation may have the maximum of bytes together; one byte more is 409, which a client should not retry; a deletion makes room', async () => {
    const first = await uploaded(ofBytes(20_000));
    await uploaded(ofBytes(20_000));
    const over = await send(uploadForm(ofBytes(10_001)));
    expectRefused(PATH, over, 'conflict');
    expect(over.headers['x-should-retry']).toBe('false');
    await uploaded(ofBytes(10_000));
    expect(blobsOnDisk()).toHaveLength(3);
    // The refusal comes before the form is read.
    expectRefused(PATH, await send([]), 'conflict');
    const other = await api.account();
    expect((await postForm(api, other, uploadForm(GOOD))).status).toBe(200);
    await api.call('DELETE', `${PATH}/${first.id}`, { key: owner.key });
    await uploaded(ofBytes(20_000));
  });

  test('an upload ends where the quota of its organisation ends', async () => {
    await uploaded(ofBytes(20_000));
    await uploaded(ofBytes(15_000));
    const { blobs } = api.world.rooms;
    const { write } = blobs;
    const bounds: number[] = [];
    blobs.write = (key, source, options) => {
      bounds.push(options.bytesMax);
      return write(key, source, options);
    };
    expectRefused(PATH, await send(uploadForm(ofBytes(15_001))), 'conflict');
    await uploaded(ofBytes(10_000));
    expect(bounds).toEqual([15_000, 15_000]);
  });

  test('whose caller leaves after the last byte is no error of ours, and leaves nothing', async () => {
    const { blobs, files } = api.world.rooms;
    const { write } = blobs;
    const leave = new AbortController();
    blobs.write = (key, source, options) =>
      write(
        key,
        readThen(source, () => leave.abort()),
        options,
      );
    const { type, text } = formOf(uploadForm(GOOD));
    const body = { stream: Readable.from([Buffer.from(text)]), contentType: type, bytes: undefined };
    const caller = { orgId: owner.orgId, principalId: owner.principalId, scopes: [] };
    await expect(files.upload({ caller, body, gone: leave.signal })).rejects.toMatchObject({ code: 'invalid_request' });
    expect(blobsOnDisk()).toEqual([]);
  });

  test('concurrent uploads are accepted as far as they fit together', async () => {
    await uploaded(ofBytes(20_000));
    const answers = await Promise.all([1, 2, 3].map(() => send(uploadForm(ofBytes(15_000)))));
    expect(answers.map(({ status }) => status).toSorted(upwards)).toEqual([200, 200, 409]);
    expect([blobsOnDisk().length, (await listed()).data.length]).toEqual([3, 3]);
  });

  test("an organisation has up to four uploads under way; the fifth is 429, and another organisation's is accepted", async () => {
    const { blobs } = api.world.rooms;
    const { write } = blobs;
    const gate = Promise.withResolvers<void>();
    blobs.write = async (...written) => {
      await gate.promise;
      return write(...written);
    };
    const sending = [1, 2, 3, 4, 5].map(() => send(uploadForm(GOOD)));
    const fifth = await Promise.race(sending);
    expectRefused(PATH, fifth, 'rate_limit_exceeded');
    expect(fifth.headers['retry-after']).toBe('5');
    blobs.write = write;
    expect((await postForm(api, await api.account(), uploadForm(GOOD))).status).toBe(200);
    gate.resolve();
    const answers = await Promise.all(sending);
    expect(answers.map(({ status }) => status).toSorted(upwards)).toEqual([200, 200, 200, 200, 429]);
    expect((await send(uploadForm(GOOD))).status).toBe(200);
  });

  test('an organisation has up to a thousand files', async () => {
    const row = await findFile(api.world.db.read, owner.orgId, (await uploaded()).id);
    await api.world.db.tx('test.files', async (tx) => {
      for (let i = 0; i < FILES_PER_ORG_MAX - 2; i += 1) {
        const id = api.ids.prefixed('file');
        if (row !== undefined) await insertFile(tx, { ...row, id, blob_key: `files-blob_${i}`, bytes: 1 });
      }
    });
    // There is room for one more.
    const both = await Promise.all([1, 2].map(() => send(uploadForm(GOOD))));
    expect(both.map(({ status }) => status).toSorted(upwards)).toEqual([200, 409]);
    expect((await listed('?limit=10000')).data).toHaveLength(FILES_PER_ORG_MAX);
    // The refusal comes before the form is read.
    expectRefused(PATH, await send([]), 'conflict');
  });
});

describe('a list', () => {
  test('has the newest first, in pages that go on after the last id', async () => {
    expect(await listed()).toEqual({ object: 'list', data: [], first_id: null, last_id: null, has_more: false });
    const ids: string[] = [];
    for (let i = 0; i < 5; i += 1) ids.unshift((await uploaded()).id);
    const first = await listed('?limit=2');
    expect([first.data.map(({ id }) => id), first.has_more]).toEqual([ids.slice(0, 2), true]);
    expect([first.first_id, first.last_id]).toEqual([ids[0], ids[1]]);
    // What a page ended with may be gone by then.
    await api.call('DELETE', `${PATH}/${ids[1]}`, { key: owner.key });
    const second = await listed(`?limit=3&after=${first.last_id}`);
    expect([second.data.map(({ id }) => id), second.has_more]).toEqual([ids.slice(2), false]);
    const upwards = await listed(`?order=asc&after=${ids[3]}`);
    expect(upwards.data.map(({ id }) => id)).toEqual([ids[2], ids[0]]);
  });

  test('may be limited to one purpose', async () => {
    await uploaded();
    expect((await listed('?purpose=fine-tune')).data).toHaveLength(1);
    expect((await listed('?purpose=assistants')).data).toHaveLength(0);
  });

  test.each(['limit=0', 'limit=10001', 'limit=x', 'after=x', 'order=up', 'cursor=x'])(
    'is refused with %s',
    async (query) => {
      expect(expectRefused(PATH, await get(`?${query}`), 'validation_failed').fields).toEqual([query.split('=')[0]]);
    },
  );

  test('has 50 files if no limit is named', async () => {
    const row = await findFile(api.world.db.read, owner.orgId, (await uploaded()).id);
    await api.world.db.tx('test.files', async (tx) => {
      for (let i = 0; i < 50; i += 1) {
        if (row !== undefined)
          await insertFile(tx, { ...row, id: api.ids.prefixed('file'), blob_key: `files-blob_${i}` });
      }
    });
    expect(await listed()).toMatchObject({ has_more: true, data: { length: 50 } });
  });
});

describe('a file', () => {
  test('can be read in ranges', async () => {
    const { id } = await uploaded();
    const part = await get(`/${id}/content`, { range: 'bytes=2-9' });
    expect(part).toMatchObject({ status: 206, body: GOOD.slice(2, 10) });
    expect(part.headers['content-range']).toBe(`bytes 2-9/${GOOD.length}`);
    expectRefused(PATH, await get(`/${id}/content`, { range: 'bytes=999999-' }), 'range_not_satisfiable');
  });

  test('is gone with its content after a deletion, which the answer confirms', async () => {
    const { id } = await uploaded();
    const answer = await api.call('DELETE', `${PATH}/${id}`, { key: owner.key });
    expect(answer).toMatchObject({ status: 200, json: { id, object: 'file', deleted: true } });
    expect(blobsOnDisk()).toEqual([]);
    for (const below of ['', '/content', '/report']) expectRefused(PATH, await get(`/${id}${below}`), 'not_found');
    expectRefused(PATH, await api.call('DELETE', `${PATH}/${id}`, { key: owner.key }), 'not_found');
    expect((await listed()).data).toEqual([]);
  });

  test('is deleted, and a refused upload is refused as ever, while the store of the contents is away', async () => {
    const { id } = await uploaded();
    const { blobs } = api.world.rooms;
    const { remove } = blobs;
    blobs.remove = async () => fail('unavailable', 'The store is away.');
    expect((await api.call('DELETE', `${PATH}/${id}`, { key: owner.key })).status).toBe(200);
    expectRefused(PATH, await send(uploadForm(GOOD).slice(1)), 'validation_failed');
    blobs.remove = remove;
    expectRefused(PATH, await get(`/${id}`), 'not_found');
  });

  test('is unavailable, and not unknown, if its content is missing, as on a disk that is not mounted', async () => {
    const { id } = await uploaded();
    const row = await findFile(api.world.db.read, owner.orgId, id);
    await api.world.rooms.blobs.remove(row?.blob_key ?? '');
    const answer = await get(`/${id}/content`);
    expect(expectRefused(PATH, answer, 'unavailable').text).toContain('the operator has been told');
    expect(answer.headers['retry-after']).toBe('60');
    expect((await api.call('DELETE', `${PATH}/${id}`, { key: owner.key })).status).toBe(200);
  });

  test('is reported to the sweep of blobs for as long as it exists', async () => {
    const { id } = await uploaded();
    const { blobs, files } = api.world.rooms;
    const sweep = (): Promise<number> => blobs.sweep({ files: files.namedBlobs }, new AbortController().signal);
    await api.world.clock.advance(2 * 3_600_000);
    expect(await sweep()).toBe(0);
    await api.world.db.tx('test.forget', (tx) => deleteFile(tx, owner.orgId, id));
    expect(await sweep()).toBe(1);
    expect(blobsOnDisk()).toEqual([]);
  });
});
