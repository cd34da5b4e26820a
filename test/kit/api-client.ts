// The public API as a customer's program uses it: JSON over fetch, every answer checked against the schema that is published for it.
import { randomUUID } from 'node:crypto';
import type { z } from 'zod';
import { Instance, type CreateInstance } from '../../shared/api/instance.ts';
import { Operation } from '../../shared/api/operation.ts';

/** An answer that is no success is thrown with its status, code and detail. */
export interface ApiClient {
  get<T>(path: string, schema: z.ZodType<T>): Promise<T>;
  /** Sends an Idempotency-Key: a new one unless `idempotencyKey` names it. */
  post<T>(path: string, body: unknown, schema: z.ZodType<T>, idempotencyKey?: string): Promise<T>;
  put<T>(path: string, body: unknown, schema: z.ZodType<T>): Promise<T>;
  delete<T>(path: string, schema: z.ZodType<T>): Promise<T>;
}

/** `baseUrl` ends with /v1. Without a key the calls are those of a stranger. */
export function openApiClient(baseUrl: string, key?: string): ApiClient {
  const call = async <T>(path: string, schema: z.ZodType<T>, init: RequestInit): Promise<T> => {
    const headers = new Headers(init.headers);
    if (key !== undefined) headers.set('authorization', `Bearer ${key}`);
    const response = await fetch(baseUrl + path, { ...init, headers, signal: AbortSignal.timeout(30_000) });
    const text = await response.text();
    if (!response.ok) throw refusalOf(response.status, text);
    return schema.parse(text === '' ? null : JSON.parse(text));
  };
  return {
    get: (path, schema) => call(path, schema, { method: 'GET' }),
    post: (path, body, schema, idempotencyKey = randomUUID()) =>
      call(path, schema, {
        method: 'POST',
        headers: { 'content-type': 'application/json', 'idempotency-key': idempotencyKey },
        body: JSON.stringify(body),
      }),
    put: (path, body, schema) =>
      call(path, schema, {
        method: 'PUT',
        headers: { 'content-type': 'application/json' },
        body: JSON.stringify(body),
      }),
    delete: (path, schema) => call(path, schema, { method: 'DELETE' }),
  };
}

/** Follows an operation to its end; `onChange` sees each new state or progress on the way. */
export async function followOperation(
  api: ApiClient,
  operationId: string,
  onChange: (operation: Operation) => void = () => undefined,
): Promise<Operation> {
  const POLL_MS = 100;
  const deadlineMs = performance.now() + 120_000;
  for (let last = ''; ;) {
    const operation = await api.get(`/operations/${operationId}`, Operation);
    const now = `${operation.state} ${operation.progress ?? ''}`;
    if (now !== last) onChange(operation);
    last = now;
    if (operation.completed_at !== null) return operation;
    if (performance.now() > deadlineMs) throw new Error(`operation ${operationId} is still ${now}`);
    await new Promise((resolve) => setTimeout(resolve, POLL_MS));
  }
}

/** Launches and waits until it runs. Throws with the operation's own words if it does not. */
export async function launch(api: ApiClient, request: CreateInstance): Promise<Instance> {
  const { operation_id: id } = await api.post('/instances', request, Operation);
  const operation = await followOperation(api, id);
  if (operation.state !== 'succeeded') {
    throw new Error(`the launch ${operation.state}: ${operation.error?.code ?? ''} ${operation.error?.detail ?? ''}`);
  }
  return api.get(`/instances/${operation.resource_id ?? ''}`, Instance);
}

/** Terminates an instance and waits until it is gone. */
export async function terminate(api: ApiClient, instanceId: string): Promise<void> {
  const { operation_id: id } = await api.delete(`/instances/${instanceId}`, Operation);
  const operation = await followOperation(api, id);
  if (operation.state !== 'succeeded') throw new Error(`the removal ${operation.state}`);
}

function refusalOf(status: number, text: string): Error {
  try {
    const { code = '', detail = text } = JSON.parse(text) as { code?: string; detail?: string };
    return new Error(`${status} ${code}: ${detail}`);
  } catch {
    return new Error(`${status}: ${text.slice(0, 500)}`);
  }
}
