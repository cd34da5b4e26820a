// One resource behind each path that names one, made by its owner through the API: what a stranger must not find.
import { Readable } from 'node:stream';
import { openReceipt } from '../../control-plane/models/gateway/states.ts';
import { insertPart, insertUpload } from '../../control-plane/models/files/uploads-store.ts';
import {
  insertJob as insertTrainingJob,
  setStatus as setTrainingStatus,
} from '../../control-plane/models/finetuning/store.ts';
import { findJob, insertJob, setStatus } from '../../control-plane/models/videos/store.ts';
import { KEYS } from '../control-plane/base/accounts/ssh-key-samples.ts';
import { addDeposit } from '../kit/deposits.ts';
import { tunableModels } from '../kit/models.ts';
import { addPerson } from '../kit/people.ts';
import { mp4 } from '../kit/video-server.ts';
import { LAUNCH } from '../kit/world.ts';
import type { Answer, Api, ApiAccount, CallOptions } from './api.ts';
import { formOf, postForm, trainingLines, uploadForm } from './forms.ts';

type Make = (api: Api, owner: ApiAccount) => Promise<string>;

/** Path up to its last parameter -> makes a resource and returns what stands for the parameters. Every path with one needs its line here. */
const RESOURCES: Record<string, Make> = {
  // A presigned URL that somebody has made up: who has a real one is nobody's business.
  '/v1/blobs/{key}': async () => 'files-blob_0',
  '/v1/api-keys/{id}': async (api, owner) => {
    const body = { name: 'x', scopes: ['instances: read'] };
    return idOf(await create(api, owner, '/v1/api-keys', body), 'id');
  },
  '/v1/members/{user_id}': async ({ world }, { orgId }) =>
    (await addPerson(world, { orgId, role: 'read-only' })).userId,
  '/v1/invitations/{id}': async (api, owner) =>
    idOf(await create(api, owner, '/v1/invitations', { role: 'member' }), 'id'),
  '/v1/ssh-keys/{id}': async (api, owner) => {
    const body = { name: 'x', public_key: KEYS.ed.line };
    return idOf(await create(api, owner, '/v1/ssh-keys', body), 'id');
  },
  '/v1/registry-credentials/{id}': async (api, owner) => {
    const body = { name: 'x', registry: 'ghcr.io', username: 'me', password: 'secret' };
    return idOf(await create(api, owner, '/v1/registry-credentials', body), 'id');
  },
  '/v1/instances/{id}': async (api, owner) => {
    await launch(api, owner);
    const { json } = await api.call('GET', '/v1/instances', { key: owner.key });
    return String(json.data?.[0]?.['id']);
  },
  '/v1/operations/{id}': async (api, owner) => idOf(await launch(api, owner), 'operation_id'),
  '/v1/webhook-endpoints/{id}': async (api, owner) => idOf(await createEndpoint(api, owner), 'id'),
  '/v1/webhook-endpoints/{id}/deliveries/{delivery_id}': async (api, owner) => {
    const id = idOf(await createEndpoint(api, owner), 'id');
    await launch(api, owner);
    const { json } = await api.call('GET', `/v1/webhook-endpoints/${id}/deliveries`, { key: owner.key });
    return `${id}/deliveries/${String(json.data?.[0]?.['id'])}`;
  },
  '/v1/files/{id}': async (api, owner) => {
    const answer = await postForm(api, owner, uploadForm(trainingLines(10)));
    return idOf(answer, 'id');
  },
  '/v1/uploads/{id}': async ({ world, ids }, { orgId }) => {
    const { blobs } = world.rooms;
    const [id, key, nowMs] = [ids.prefixed('upload'), blobs.newKey('files'), world.clock.now()];
    const { bytes } = await blobs.write(key, Readable.from([Buffer.from('x')]), {
      bytesMax: 1,
      signal: new AbortController().signal,
    });
    const named = { id, org_id: orgId, filename: 'a.jsonl', purpose: 'fine-tune', mime_type: 'text/jsonl' } as const;
    await world.db.tx('test.upload', async (tx) => {
      await insertUpload(tx, { ...named, bytes, created_ms: nowMs, expires_ms: nowMs + 3_600_000 });
      await insertPart(tx, { id: partOf(id), upload_id: id, blob_key: key, bytes, created_ms: nowMs });
    });
    return id;
  },
  '/v1/receipts/{id}': async ({ world, ids }, owner) => {
    const named = requestOf(owner, ids.prefixed('rcp'));
    const money = { tier: 'serverless', held_ucents: 0n, opened_ms: world.clock.now() } as const;
    const receipt = { ...named, ...money, end_user: null, metadata: null, member: 'member-1' };
    await world.db.hot(openReceipt(receipt));
    return named.id;
  },
  '/v1/videos/{id}': async ({ world, ids }, owner) => {
    const { blobs } = world.rooms;
    const [id, key, nowMs] = [ids.prefixed('vid'), blobs.newKey('videos'), world.clock.now()];
    await blobs.write(key, Readable.from([mp4()]), { bytesMax: 64, signal: new AbortController().signal });
    const named = requestOf(owner, id);
    const request = { prompt: 'x', parameters: {} };
    const job = { ...named, seconds: 4, held_ucents: 0n, request, created_ms: nowMs };
    await world.db.tx('test.video', async (tx) => {
      await insertJob(tx, job);
      const made = await findJob(tx, id);
      if (made !== undefined) await setStatus(tx, made, 'completed', { blob_key: key, due_ms: null });
    });
    return id;
  },
  '/v1/fine_tuning/jobs/{id}': async ({ world, ids }, owner) => {
    const [id, nowMs] = [ids.prefixed('ftjob'), world.clock.now()];
    const method = { type: 'lora' as const, lora: { lora_r: 8, lora_alpha: 16, lora_dropout: 0 } };
    const request = { method, seed: 1, suffix: null, metadata: null, gpu_preference: null };
    const file = { training_file: 'file_x', file_key: 'files-blob_x', file_bytes: 1, file_sha256: '0' };
    const [tunable] = tunableModels();
    if (tunable?.fine_tuning === undefined) throw new Error('no model can be tuned');
    const money = { terms: tunable.fine_tuning, budget_ucents: 1n };
    const job = { id, org_id: owner.orgId, api_key_id: owner.principalId, model: 'tiny-base', ...file, ...money };
    await world.db.tx('test.job', async (tx) => {
      await insertTrainingJob(tx, { ...job, request, created_ms: nowMs });
      await setTrainingStatus(tx, id, { from: 'validating', to: 'cancelled' }, { due_ms: null });
    });
    return id;
  },
  '/v1/deposits/{id}': ({ world, ids }, { orgId }) => addDeposit(world, ids.prefixed('dep'), orgId),
  '/v1/community/machines/{id}': async (api, owner) => {
    await create(api, owner, '/v1/community/supplier', undefined);
    const body = { region: 'eu', price_per_hour: 1 };
    const { json } = await create(api, owner, '/v1/community/machines', body);
    return String((json['machine'] as { machine_id: string }).machine_id);
  },
};

/** What receipts and videos have in common. */
function requestOf({ orgId, principalId }: ApiAccount, id: string) {
  return { id, org_id: orgId, api_key_id: principalId, request_id: 'req_x', model_id: 'a/b' };
}

/** The id of the only part of an upload that was made here. */
function partOf(uploadId: string): string {
  return uploadId.replace('upload', 'part');
}

type Sent = Pick<CallOptions, 'body' | 'form'>;

/** What the owner could send, by operation. `made` is what the maker of the path has returned. */
const SENT: Record<string, (made: string) => Sent> = {
  changeMember: () => ({ body: { role: 'billing' } }),
  renameInstance: () => ({ body: { name: 'renamed' } }),
  changeWebhookEndpoint: () => ({ body: { enabled: false } }),
  testWebhookEndpoint: () => ({ body: {} }),
  changeMachine: () => ({ body: { price_per_hour: 2 } }),
  completeUpload: (made) => ({ body: { part_ids: [partOf(made)] } }),
  addUploadPart: () => ({ form: formOf([{ name: 'data', value: 'x', filename: 'blob' }]) }),
};

/** Undefined if nobody has said how to make what the path names. */
export function makerFor(path: string): Make | undefined {
  return RESOURCES[/^.*\}/.exec(path)?.[0] ?? ''];
}

/** `made` is what the maker of the path has returned. */
export function urlOf(path: string, made: string): string {
  return path.replace(/\{.*\}/, () => made);
}

/** The same text for every parameter. */
export function urlWith(path: string, text: string): string {
  return path.replaceAll(/\{\w+\}/g, () => text);
}

export function bodyFor(operationId: string, made: string): Sent {
  return SENT[operationId]?.(made) ?? {};
}

/** An owner with one of everything. */
export async function makeAll(api: Api, owner: ApiAccount): Promise<void> {
  for (const make of Object.values(RESOURCES)) await make(api, owner);
}

async function launch(api: Api, owner: ApiAccount): Promise<Answer> {
  await api.world.machine();
  return create(api, owner, '/v1/instances', LAUNCH);
}

async function createEndpoint(api: Api, owner: ApiAccount): Promise<Answer> {
  const body = { url: 'https://example.com/hook', event_types: ['instance.creating'] };
  return create(api, owner, '/v1/webhook-endpoints', body);
}

async function create(api: Api, { key }: ApiAccount, url: string, body: object | undefined): Promise<Answer> {
  const answer = await api.call('POST', url, body === undefined ? { key } : { key, body });
  if (answer.status >= 300) throw new Error(`POST ${url}: ${answer.status} ${answer.body}`);
  return answer;
}

function idOf({ json }: Answer, member: string): string {
  return String(json[member]);
}
