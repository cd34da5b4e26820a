// Attacks that need minutes, on real processes. They run in the soak; short forms of them are among the other tests.
import { randomBytes, randomUUID } from 'node:crypto';
import { readdirSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { Balance } from '../../shared/api/billing.ts';
import { Instance } from '../../shared/api/instance.ts';
import { Operation } from '../../shared/api/operation.ts';
import { pageSchema } from '../../shared/api/page.ts';
import { PricingRow } from '../../shared/api/pricing.ts';
import { endChargedThroughout } from '../attacks/charged-throughout.ts';
import { floodLink } from '../attacks/link-frames.ts';
import { openSlowRegistry, type SlowRegistry } from '../attacks/slow-registry.ts';
import { openApiClient } from '../kit/api-client.ts';
import { startControlPlane, type ControlPlane } from '../kit/control-plane.ts';
import { mountSmallDisk, type SmallDisk } from '../kit/disks.ts';
import { busyboxImage } from '../kit/images.ts';
import { freePort } from '../kit/ports.ts';
import { eventually } from '../kit/processes.ts';
import { ONE_GPU, openRentalStack, type RentalStack } from '../kit/rental-stack.ts';
import { addHost, openAccount, registerMachine, verifyLedger } from '../kit/stack.ts';

const MINUTE_MS = 60_000;
/** The attack lasts as long as the audit's, and somewhat more. */
const FRAMES_MS = 3 * MINUTE_MS;
/** 110 frames held everything up for 121 seconds. */
const READ_MS_MAX = 3_000;
/** Fewer than one key may send. */
const READ_AGAIN_MS = 50;
const SLOW_LAUNCHES = 3;
const SILENT_MS = 2 * MINUTE_MS;
const MIB = 1024 ** 2;

const isShort = process.env['SOAK'] !== '1';

describe.skipIf(isShort)('for minutes', () => {
  let stack: RentalStack;
  let slowPort: number;
  let slow: SlowRegistry;
  beforeAll(async () => {
    slowPort = await freePort();
    const hosts = (registry: string): object[] =>
      [registry, `127.0.0.1:${slowPort}`].map((host) => ({ host, plain_http: true }));
    stack = await openRentalStack({ settings: (registry) => ({ images: { private_registries: hosts(registry) } }) });
    await stack.engine.letThrough(slowPort);
    slow = await openSlowRegistry(slowPort, stack.registry);
  });
  afterAll(async () => {
    await slow.stop();
    expect(await stack.end()).toEqual([]);
  });

  test('frames of strangers stop neither the API nor the bill, and nobody is paid for them', async () => {
    const { api } = stack.customer;
    const instance = await stack.rent();
    const { port } = new URL(stack.controlPlane.agentUrl);
    const flood = floodLink(Number(port));
    let slowestMs = 0;
    try {
      const startedMs = performance.now();
      while (performance.now() - startedMs < FRAMES_MS) {
        const askedMs = performance.now();
        expect((await api.get(`/instances/${instance.id}`, Instance)).status).toBe('running');
        slowestMs = Math.max(slowestMs, performance.now() - askedMs);
        await sleep(READ_AGAIN_MS);
      }
    } finally {
      flood.stop();
    }
    expect(flood.sent()).toBeGreaterThan(1_000);
    expect(slowestMs).toBeLessThan(READ_MS_MAX);
    await endChargedThroughout(api, instance);
    expect(stack.controlPlane.daemon.logTail(10_000)).not.toMatch(/the control plane was away/);
  });

  test('a registry that trickles holds GPUs for a minute, by the fault of the image', async () => {
    // The image has a layer that the engine does not have.
    const { ref } = await busyboxImage(stack.registry, { name: 'slow', files: { '/noise': randomBytes(1024 ** 2) } });
    const image = ref.replace(stack.registry.host, `127.0.0.1:${slowPort}`);
    const stranger = openApiClient(stack.controlPlane.baseUrl);
    const allFree = (): Promise<true> =>
      eventually('eight GPUs on offer', MINUTE_MS, async () => {
        const [offer] = (await stranger.get('/pricing', pageSchema(PricingRow))).data;
        return offer?.available === 8 ? true : undefined;
      });
    await allFree();
    for (let i = 1; i <= SLOW_LAUNCHES; i += 1) {
      const startedMs = performance.now();
      await expect(stack.rent({ image, gpu_count: 8 })).rejects.toThrow(/image_unavailable/);
      expect(performance.now() - startedMs).toBeLessThan(1.5 * MINUTE_MS);
      expect(slow.layers()).toBeGreaterThanOrEqual(i);
      await allFree();
    }
    expect((await stack.customer.api.get('/balance', Balance)).held_cents).toBe(0);
  });
});

describe.skipIf(isShort)('an image that keeps our guest silent', () => {
  let stack: RentalStack;
  beforeAll(async () => {
    const gpuHours = { unpaid_gpu_hours_per_org: 1 };
    stack = await openRentalStack({ settings: () => gpuHours });
    const { machineId, token } = await registerMachine(stack.supplier, 36);
    const other = addHost(stack, { env: { FAKE_GPU_COUNT: '8', FAKE_GPU_SEED: '1' } });
    expect(await other.enroll(stack.controlPlane.agentUrl, token)).toMatchObject({ code: 0 });
    await other.daemon.start();
    await stack.controlPlane.operator('admin', 'machine', 'approve', machineId);
    // Nobody knows an image that can do this. So the guest of both hosts is replaced by a program that never speaks.
    for (const { stateDir } of stack.agents) {
      const [bundle = ''] = readdirSync(join(stateDir, 'bundles'));
      writeFileSync(join(stateDir, 'bundles', bundle, 'guest', 'guest.cjs'), 'setInterval(() => {}, 1e9);');
    }
  });
  afterAll(async () => {
    await verifyLedger(stack.controlPlane);
    expect(await stack.stop()).toEqual([]);
  });

  test('computes for two minutes on one host, and its GPU hours count until launches are refused', async () => {
    const begun = (): number =>
      stack.agents.flatMap(({ daemon }) => [...daemon.logTail(10_000).matchAll(/a holder was started/g)]).length;
    const { api } = stack.customer;
    const start = (): Promise<Operation> =>
      api.post('/instances', { ...ONE_GPU, gpu_count: 8, image: stack.image.ref }, Operation);
    for (let launches = 1; launches <= 2; launches += 1) {
      const startedMs = performance.now();
      const { operation_id: id } = await start();
      const { error } = await eventually('an end of the launch', SILENT_MS + MINUTE_MS, async () => {
        const operation = await api.get(`/operations/${id}`, Operation);
        await sleep(READ_AGAIN_MS);
        return operation.completed_at === null ? undefined : operation;
      });
      expect(error).toMatchObject({ code: 'image_unavailable', detail: expect.stringContaining('2 minutes') });
      expect(performance.now() - startedMs).toBeGreaterThan(SILENT_MS);
      expect(begun()).toBe(launches);
    }
    await expect(start()).rejects.toThrow(/429 rate_limit_exceeded/);
    expect((await stack.customer.api.get('/balance', Balance)).held_cents).toBe(0);
  });
});

describe.skipIf(isShort)('uploads that fill the disk of the database', () => {
  const RESERVE_MIB = 256;
  const UPLOAD_MIB = 16;
  const UPLOADS_MS = MINUTE_MS;
  let disk: SmallDisk;
  let controlPlane: ControlPlane;
  beforeAll(async () => {
    disk = mountSmallDisk(640 * MIB);
    controlPlane = await startControlPlane(join(disk.dir, 'cp'), {
      postgresUrl: undefined,
      registries: [],
      authority: undefined,
      settings: {
        files: { file_mib_max: 32, mib_per_org: 100_000 },
        disk_reserve: { percent: 0, gib: RESERVE_MIB / 1024 },
      },
    });
  });
  afterAll(async () => {
    await controlPlane.daemon.stop();
    disk.remove();
  });

  test('stop at the reserve while others work on; on a full disk deletes go on, and whatever stores is to come back', async () => {
    const attacker = await openAccount(controlPlane, 'attacker', 'all');
    const other = await openAccount(controlPlane, 'other', 'all');
    const asked = async (method: string, path: string, key = other.key, body?: FormData): Promise<Response> => {
      const headers = { authorization: `Bearer ${key}`, 'idempotency-key': randomUUID() };
      return fetch(`${controlPlane.agentUrl}${path}`, { method, headers, ...(body && { body }) });
    };
    // The answer to a refused upload is lost if the connection closes under the rest of the body.
    const upload = async (): Promise<Response | undefined> => {
      const form = new FormData();
      form.set('purpose', 'fine-tune');
      form.set('file', new Blob([' '.repeat(UPLOAD_MIB * MIB)]), 'spaces.jsonl');
      return asked('POST', '/v1/files', attacker.key, form).catch(() => undefined);
    };
    const write = async (): Promise<number> => (await asked('POST', '/v1/community/supplier')).status;
    const isReady = async (): Promise<boolean> => (await asked('GET', '/readyz')).status === 200;

    const kept: string[] = [];
    const refused = new Set<number | undefined>();
    const startedMs = performance.now();
    while (performance.now() - startedMs < UPLOADS_MS) {
      const sent = await Promise.all([upload(), upload(), upload()]);
      for (const response of sent) {
        if (response?.ok === true) kept.push(((await response.json()) as { id: string }).id);
        else refused.add(response?.status);
      }
      expect([await write(), await isReady()]).toEqual([200, true]);
    }
    expect(kept.length).toBeGreaterThan(3);
    refused.delete(undefined);
    expect([...refused]).toEqual([507]);
    expect(disk.freeBytes()).toBeGreaterThan((RESERVE_MIB - UPLOAD_MIB) * MIB);

    disk.fill();
    expect(await eventually('a full disk', MINUTE_MS, async () => ((await isReady()) ? undefined : 503))).toBe(503);
    for (const id of kept.slice(0, 2)) {
      expect((await asked('DELETE', `/v1/files/${id}`, attacker.key)).status).toBe(200);
    }
    const written = await asked('POST', '/v1/community/supplier');
    expect([written.status, written.headers.get('retry-after')]).toEqual([503, '30']);
    expect((await asked('GET', '/v1/balance')).status).toBe(200);
    expect([undefined, 503, 507]).toContain((await upload())?.status);

    disk.empty();
    await eventually('a disk with room', MINUTE_MS, async () => ((await isReady()) ? true : undefined));
    expect(await write()).toBe(200);
    await verifyLedger(controlPlane);
  });
});
