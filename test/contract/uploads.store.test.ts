// /v1/uploads: files that come in parts, as official clients send them. States, limits at both edges, order, repeats, quota, cleaning, owners.
import { createHash } from 'node:crypto';
import { existsSync, readdirSync } from 'node:fs';
import { Readable } from 'node:stream';
import { describe, expect, test } from 'vitest';
import { brought } from '../../control-plane/brings.ts';
import { countRow } from '../../control-plane/base/db/columns.ts';
import { sql } from '../../control-plane/base/db/db.ts';
import { insertPart } from '../../control-plane/models/files/uploads-store.ts';
import { Upload } from '../../shared/api/upload.ts';
import { FILES_PER_ORG_MAX, UPLOAD_PARTS_MAX } from '../../shared/limits.ts';
import type { Answer, CallOptions } from './api.ts';
import { api, openApiForEachTest, owner } from './api-of-test.ts';
import { type FormPart, formOf, postForm, trainingLines, uploadForm } from './forms.ts';
import { expectRefused } from './refusals.ts';

const PATH = '/v1/uploads';
const HOUR_MS = 3_600_000;
const FILE_BYTES_MAX = 20_000;
const ORG_BYTES_MAX = 50_000;
const GOOD = trainingLines(20);
const NOW_S = (): number => Math.floor(api.world.clock.now() / 1000);
const never = new AbortController().signal;

openApiForEachTest(() => ({ settings: { fileBytesMax: FILE_BYTES_MAX, fileBytesPerOrg: ORG_BYTES_MAX } }));

const asked = (bytes = GOOD.length) => ({
  bytes,
  filename: 'train.jsonl',
  mime_type: 'text/jsonl',
  purpose: 'fine-tune',
});
const post = (path: string, options: CallOptions = {}): Promise<Answer> =>
  api.call('POST', `${PATH}${path}`, { key: owner.key, ...options });
const create = (body: object = asked()): Promise<Answer> => post('', { body });
const created = async (bytes?: number): Promise<string> => {
  const answer = await create(asked(bytes));
  expect(answer.status).toBe(200);
  return String(answer.json['id']);
};
const data = (value: string): FormPart => ({ name: 'data', value, filename: 'blob' });
const sendPart = (id: string, ...parts: FormPart[]): Promise<Answer> => post(`/${id}/parts`, { form: formOf(parts) });
const added = async (id: string, text: string): Promise<string> => {
  const answer = await sendPart(id, data(text));
  expect(answer.status).toBe(200);
  return String(answer.json['id']);
};
const complete = (id: string, partIds: readonly string[], more: object = {}): Promise<Answer> =>
  post(`/${id}/complete`, { body: { part_ids: partIds, ...more } });
const cancel = (id: string): Promise<Answer> => post(`/${id}/cancel`);
const upwards = (a: number, b: number): number => a - b;
const md5Of = (text: string): string => createHash('md5').update(text).digest('hex');
const blobsOnDisk = (): string[] => {
  const { blobsDirectory: directory } = api.world;
  if (!existsSync(directory)) return [];
  return readdirSync(directory, { recursive: true, withFileTypes: true })
    .filter((entry) => entry.isFile())
    .map(({ name }) => name);
};
const contentOf = async (id: string): Promise<string> =>
  (await api.call('GET', `/v1/files/${id}/content`, { key: owner.key })).body;
const rowsOf = async (table: 'uploads' | 'upload_parts'): Promise<number | undefined> => {
  const rows = table === 'uploads' ? sql`uploads` : sql`upload_parts`;
  return (await api.world.db.read.one(countRow, sql`select count(*) as count from ${rows}`))?.count;
};
const clean = (): Promise<'again' | undefined> => api.world.rooms.files.uploads.clean(never);
/** An upload with two parts that are its file. */
const twoParts = async (): Promise<{ id: string; parts: string[] }> => {
  const id = await created();
  return { id, parts: [await added(id, GOOD.slice(0, 700)), await added(id, GOOD.slice(700))] };
};

describe('an upload', () => {
  test('is pending for an hour, with the members that official clients read', async () => {
    const { status, json } = await create();
    expect(status).toBe(200);
    expect(json).toEqual({
      id: expect.stringMatching(/^upload_[0-9a-z]{26}$/) as string,
      object: 'upload',
      bytes: GOOD.length,
      created_at: NOW_S(),
      expires_at: NOW_S() + 3_600,
      filename: 'train.jsonl',
      purpose: 'fine-tune',
      status: 'pending',
      file: null,
    });
  });

  test('becomes a file of its parts in the order that the request names', async () => {
    const id = await created();
    const second = await added(id, GOOD.slice(700));
    const unused = await added(id, 'sent twice');
    const first = await added(id, GOOD.slice(0, 700));
    const { status, json } = await complete(id, [first, second], { md5: md5Of(GOOD).toUpperCase() });
    expect([status, json['status']]).toEqual([200, 'completed']);
    const { file } = Upload.parse(json);
    expect(file).toMatchObject({ object: 'file', bytes: GOOD.length, filename: 'train.jsonl', status: 'processed' });
    expect(await contentOf(file?.id ?? '')).toBe(GOOD);
    expect([first, second, unused].every((part) => /^part_[0-9a-z]{26}$/.test(part))).toBe(true);
    await clean();
    expect(blobsOnDisk()).toHaveLength(1);
    expect(await contentOf(file?.id ?? '')).toBe(GOOD);
  });

  test('is checked over the borders of its parts, and a file that cannot serve for training has the status error', async () => {
    const text = `${GOOD}{}\n`;
    const id = await created(text.length);
    const parts: string[] = [];
    for (let at = 0; at < text.length; at += 333) parts.push(await added(id, text.slice(at, at + 333)));
    const { file } = Upload.parse((await complete(id, parts)).json);
    expect(file).toMatchObject({ status: 'error', status_details: expect.stringMatching(/^Line 21: /) as string });
  });

  test('shows a part as official clients read it', async () => {
    const id = await created();
    expect((await sendPart(id, data('x'))).json).toEqual({
      id: expect.stringMatching(/^part_/) as string,
      object: 'upload.part',
      upload_id: id,
      created_at: NOW_S(),
    });
  });

  test('is the same on the next process: every part may reach another control plane', async () => {
    const { id, parts } = await twoParts();
    const next = await api.restart();
    const answer = await next.call('POST', `${PATH}/${id}/complete`, { key: owner.key, body: { part_ids: parts } });
    expect(answer.json['status']).toBe('completed');
  });
});

describe('a create is refused', () => {
  test.each<[string, object, string]>([
    ['without its bytes', { bytes: undefined }, 'bytes'],
    ['with no bytes', { bytes: 0 }, 'bytes'],
    ['with a part of a byte', { bytes: 1.5 }, 'bytes'],
    ['with more than a file may have', { bytes: FILE_BYTES_MAX + 1 }, 'bytes'],
    ['with more than 8 GiB', { bytes: 8 * 1024 ** 3 + 1 }, 'bytes'],
    ['without a name', { filename: '' }, 'filename'],
    ['with too long a name', { filename: 'n'.repeat(256) }, 'filename'],
    ['with control characters in its name', { filename: 'a\u0001b' }, 'filename'],
    ['without a media type', { mime_type: '' }, 'mime_type'],
    ['for another purpose', { purpose: 'assistants' }, 'purpose'],
  ])('%s', async (_what, wrong, field) => {
    expect(expectRefused(PATH, await create({ ...asked(), ...wrong }), 'validation_failed').fields).toEqual([field]);
  });

  test('with a member that is not supported, by its name', async () => {
    const answer = await create({ ...asked(), expires_after: { anchor: 'created_at', seconds: 3600 } });
    expect(expectRefused(PATH, answer, 'unsupported_parameter').fields).toEqual(['expires_after']);
  });

  test('above the bytes of the organisation, which pending uploads count for; a cancelled one does not', async () => {
    expect((await postForm(api, owner, uploadForm(GOOD))).status).toBe(200);
    await created(20_000);
    const left = ORG_BYTES_MAX - GOOD.length - 20_000;
    const ids = [await created(20_000), await created(left - 20_000)];
    expectRefused(PATH, await create(asked(1)), 'conflict');
    expectRefused('/v1/files', await postForm(api, owner, uploadForm(GOOD)), 'conflict');
    expect((await cancel(ids[1] ?? '')).status).toBe(200);
    expect((await create(asked(left - 20_000))).status).toBe(200);
  });

  test('above the number of files, which pending uploads count for', async () => {
    await created(1);
    await api.world.db.tx('test.many', async (tx) => {
      for (let i = 1; i < FILES_PER_ORG_MAX; i += 1)
        await tx.run(
          sql`insert into uploads (id, org_id, filename, purpose, mime_type, bytes, status, created_ms, expires_ms)
              values (${`upload_${i}`}, ${owner.orgId}, 'a', 'fine-tune', 'text/jsonl', 1, 'pending', 0, ${Date.UTC(2030, 0)})`,
        );
    });
    expectRefused(PATH, await create(asked(1)), 'conflict');
  });
});

describe('a part is refused', () => {
  test.each<[string, FormPart[], string]>([
    ['without data', [], 'data'],
    ['with a text in place of the data', [{ name: 'data', value: 'x' }], 'data'],
    ['with data twice', [data('x'), data('y')], 'data'],
    ['with nothing in it', [data('')], 'data'],
  ])('%s', async (_what, parts, field) => {
    const answer = await sendPart(await created(), ...parts);
    expect(expectRefused(PATH, answer, 'validation_failed').fields).toEqual([field]);
    expect(blobsOnDisk()).toEqual([]);
  });

  test('with another field, by its name', async () => {
    const id = await created();
    const answer = await sendPart(id, { name: 'part_number', value: '1' }, data('x'));
    expect(expectRefused(PATH, answer, 'unsupported_parameter').fields).toEqual(['part_number']);
    expectRefused(PATH, await sendPart(id, { ...data('x'), name: 'file' }), 'unsupported_parameter');
  });

  test('if all parts together have more than twice the bytes of the file', async () => {
    const id = await created(100);
    await added(id, 'x'.repeat(150));
    await added(id, 'x'.repeat(49));
    expectRefused(PATH, await sendPart(id, data('xx')), 'conflict');
    await added(id, 'x');
    expectRefused(PATH, await sendPart(id, data('x')), 'conflict');
  });

  test('if it is one too many of those that arrive at the same moment', async () => {
    const id = await created(100);
    const answers = await Promise.all(Array.from({ length: 5 }, () => sendPart(id, data('x'.repeat(80)))));
    expect(answers.map(({ status }) => status).toSorted(upwards)).toEqual([200, 200, 409, 409, 409]);
    expect(await rowsOf('upload_parts')).toBe(2);
    expect(blobsOnDisk()).toHaveLength(2);
  });

  test('if the upload has as many parts as it may have', async () => {
    const id = await created();
    await api.world.db.tx('test.many', async (tx) => {
      for (let i = 1; i < UPLOAD_PARTS_MAX; i += 1)
        await insertPart(tx, { id: `part_${i}`, upload_id: id, blob_key: `files-blob_${i}`, bytes: 1, created_ms: 0 });
    });
    await added(id, 'x');
    expectRefused(PATH, await sendPart(id, data('x')), 'conflict');
  });

  test('if its caller leaves in the middle, and nothing of it stays', async () => {
    const id = await created();
    const broken = formOf([data('x'.repeat(500))]);
    const answer = await post(`/${id}/parts`, { form: { ...broken, text: broken.text.slice(0, 300) } });
    expectRefused(PATH, answer, 'invalid_request');
    expect(blobsOnDisk()).toEqual([]);
    expect(await rowsOf('upload_parts')).toBe(0);
  });
});

describe('a completion is refused', () => {
  test.each<[string, object, string]>([
    ['without parts', { part_ids: [] }, 'part_ids'],
    ['with too many', { part_ids: Array.from({ length: UPLOAD_PARTS_MAX + 1 }, (_, i) => `part_${i}`) }, 'part_ids'],
    ['with an unknown one', { part_ids: ['part_none'] }, 'part_ids[0]'],
    ['with an MD5 that is none', { md5: 'x'.repeat(32) }, 'md5'],
  ])('%s', async (_what, wrong, field) => {
    const { id, parts } = await twoParts();
    const answer = await complete(id, parts, wrong);
    expect(expectRefused(PATH, answer, 'validation_failed').fields).toEqual([field]);
  });

  test('with a part twice, with a part of another upload, and with other bytes than announced', async () => {
    const { id, parts } = await twoParts();
    const [first = '', second = ''] = parts;
    const other = await added(await created(), 'x');
    const fields = async (partIds: string[]): Promise<[string[], string]> => {
      const { fields: named, text } = expectRefused(PATH, await complete(id, partIds), 'validation_failed');
      return [named, text];
    };
    expect((await fields([first, first]))[0]).toEqual(['part_ids[1]']);
    expect((await fields([first, other]))[0]).toEqual(['part_ids[1]']);
    const [named, text] = await fields([first]);
    expect(named).toEqual(['part_ids']);
    expect(text).toContain(`${GOOD.length} bytes of the upload, and have 700 bytes`);
    expect((await complete(id, [first, second])).status).toBe(200);
  });

  test('with the MD5 of another content, and leaves the upload pending without a file', async () => {
    const { id, parts } = await twoParts();
    const { fields, text } = expectRefused(PATH, await complete(id, parts, { md5: md5Of('x') }), 'validation_failed');
    expect(fields).toEqual(['md5']);
    expect(text).toContain(md5Of(GOOD));
    expect(blobsOnDisk()).toHaveLength(2);
    expect((await complete(id, parts, { md5: md5Of(GOOD) })).status).toBe(200);
  });

  test('if a part is gone from the store', async () => {
    const { id, parts } = await twoParts();
    const [key = ''] = blobsOnDisk();
    await api.world.rooms.blobs.remove(key);
    expectRefused(PATH, await complete(id, parts), 'conflict');
    expect(blobsOnDisk()).toHaveLength(1);
  });
});

describe('a repeated request', () => {
  test('to complete gets the same file, and another order is a conflict', async () => {
    const { id, parts } = await twoParts();
    const first = await complete(id, parts);
    expect((await complete(id, parts)).json).toEqual(first.json);
    expectRefused(PATH, await complete(id, parts.toReversed()), 'conflict');
    const { file } = Upload.parse(first.json);
    await api.call('DELETE', `/v1/files/${file?.id}`, { key: owner.key });
    expect((await complete(id, parts)).json).toMatchObject({ status: 'completed', file: null });
  });

  test('to complete by a caller that has left is no fault of ours, and can be repeated', async () => {
    const { id, parts } = await twoParts();
    const caller = { ...owner, scopes: [] };
    const body = { part_ids: parts };
    const call = { caller, params: { id }, body, gone: AbortSignal.abort(), settle: async () => undefined };
    await expect(api.world.rooms.files.uploads.complete(call)).rejects.toMatchObject({ code: 'invalid_request' });
    expect((await complete(id, parts)).status).toBe(200);
  });

  test('to complete at the same moment makes one file', async () => {
    const { id, parts } = await twoParts();
    const answers = await Promise.all([complete(id, parts), complete(id, parts), complete(id, parts)]);
    const files = answers.map(({ json }) => Upload.parse(json).file?.id);
    expect(new Set(files).size).toBe(1);
    await clean();
    expect(blobsOnDisk()).toHaveLength(1);
  });

  test('with an Idempotency-Key is answered from the first one', async () => {
    const headers = { 'idempotency-key': 'same' };
    const first = await post('', { body: asked(), headers });
    const again = await post('', { body: asked(), headers });
    expect([again.body, again.headers['idempotent-replayed']]).toEqual([first.body, 'true']);
    expect(await rowsOf('uploads')).toBe(1);
    expectRefused(PATH, await post('', { body: asked(1), headers }), 'idempotency_key_reused');
  });
});

describe('an upload that has ended', () => {
  test('takes no parts and cannot be completed; cancelled, it stays as it is', async () => {
    const { id, parts } = await twoParts();
    expect((await cancel(id)).json).toMatchObject({ id, status: 'cancelled', file: null });
    expect((await cancel(id)).json).toMatchObject({ id, status: 'cancelled' });
    for (const answer of [await sendPart(id, data('x')), await complete(id, parts)])
      expect(expectRefused(PATH, answer, 'conflict').text).toContain('is cancelled');
  });

  test('by completion takes no parts and cannot be cancelled', async () => {
    const { id, parts } = await twoParts();
    await complete(id, parts);
    for (const answer of [await sendPart(id, data('x')), await cancel(id)])
      expect(expectRefused(PATH, answer, 'conflict').text).toContain('Its file is file_');
  });

  test('by its time is expired after an hour, and not a millisecond earlier', async () => {
    const { id, parts } = await twoParts();
    await api.world.clock.advance(HOUR_MS - 1);
    expect((await sendPart(id, data('x'))).status).toBe(200);
    await api.world.clock.advance(1);
    for (const answer of [await sendPart(id, data('x')), await complete(id, parts)])
      expectRefused(PATH, answer, 'expired');
    expect((await cancel(id)).json).toMatchObject({ id, status: 'expired' });
  });

  test('loses its parts, and after a day its row; a pending one keeps them', async () => {
    const [cancelled, completed, pending] = [await twoParts(), await twoParts(), await twoParts()];
    await cancel(cancelled.id);
    await complete(completed.id, completed.parts);
    await clean();
    expect(await rowsOf('upload_parts')).toBe(2);
    expect(blobsOnDisk()).toHaveLength(3);
    const forget = async (): Promise<void> => {
      for (const { what, run } of brought(api.world.brings(), 'forgets')) if (what === 'uploads') await run(never);
    };
    // Its time is over, and so is the time in which a completion that has begun may end.
    await api.world.clock.advance(HOUR_MS + 30 * 60_000 - 1);
    await clean();
    expect(await rowsOf('upload_parts')).toBe(2);
    await api.world.clock.advance(1);
    await clean();
    expect(await rowsOf('upload_parts')).toBe(0);
    expect((await cancel(pending.id)).json).toMatchObject({ status: 'expired' });
    await api.world.clock.advance(23.5 * HOUR_MS - 1);
    await forget();
    expect(await rowsOf('uploads')).toBe(3);
    await api.world.clock.advance(1);
    await forget();
    expect(await rowsOf('uploads')).toBe(0);
  });
});

test('the sweep leaves the parts of a pending upload, and removes what no row names', async () => {
  const { blobs, files } = api.world.rooms;
  const orphan = blobs.newKey('files');
  await blobs.write(orphan, Readable.from([Buffer.from('x')]), { bytesMax: 1, signal: never });
  const { id, parts } = await twoParts();
  await api.world.clock.advance(HOUR_MS - 1);
  expect(await blobs.sweep({ files: files.namedBlobs }, never)).toBe(0);
  await api.world.clock.advance(1);
  expect(await blobs.sweep({ files: files.namedBlobs }, never)).toBe(1);
  expect(blobsOnDisk()).not.toContain(orphan);
  expect(blobsOnDisk()).toHaveLength(parts.length);
  expect((await cancel(id)).json).toMatchObject({ status: 'expired' });
});
