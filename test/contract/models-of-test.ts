// The API with models, for each test of a file: as in api-of-test.ts, and their server, which lives as long.
import { afterEach, beforeEach } from 'vitest';
import { findReceipt, type Receipt } from '../../control-plane/models/gateway/store.ts';
import { type FakeUpstream, openFakeUpstream } from '../kit/fake-upstream.ts';
import { someModels } from '../kit/models.ts';
import type { Answer } from './api.ts';
import { api, openApiForEachTest } from './api-of-test.ts';

export let upstream: FakeUpstream;

/** Every test of the file gets its own. The server closes after the API, which may still be asking it. */
export function openModelsForEachTest(): void {
  beforeEach(async () => {
    upstream = await openFakeUpstream();
  });
  afterEach(() => upstream.close());
  openApiForEachTest(() => ({ settings: { models: someModels(upstream.baseUrl) } }));
}

export const receiptOf = ({ headers }: Answer): Promise<Receipt | undefined> =>
  findReceipt(api.world.db.read, headers['x-receipt-id'] ?? '');
