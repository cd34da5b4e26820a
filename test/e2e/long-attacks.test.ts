// Attacks that need minutes, on real processes. They run in the soak; short forms of them are among the other tests.
import { randomBytes } from 'node:crypto';
import { setTimeout as sleep } from 'node:timers/promises';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { Balance } from '../../shared/api/billing.ts';
import { Instance } from '../../shared/api/instance.ts';
import { pageSchema } from '../../shared/api/page.ts';
import { PricingRow } from '../../shared/api/pricing.ts';
import { endChargedThroughout } from '../attacks/charged-throughout.ts';
import { floodLink } from '../attacks/link-frames.ts';
import { openSlowRegistry, type SlowRegistry } from '../attacks/slow-registry.ts';
import { openApiClient } from '../kit/api-client.ts';
import { busyboxImage } from '../kit/images.ts';
import { freePort } from '../kit/ports.ts';
import { eventually } from '../kit/processes.ts';
import { openRentalStack, type RentalStack } from '../kit/rental-stack.ts';

const MINUTE_MS = 60_000;
/** The attack lasts as long as the audit's, and somewhat more. */
const FRAMES_MS = 3 * MINUTE_MS;
/** 110 frames held everything up for 121 seconds. */
const READ_MS_MAX = 3_000;
/** Fewer than one key may send. */
const READ_AGAIN_MS = 50;
const SLOW_LAUNCHES = 3;

describe.skipIf(process.env['SOAK'] !== '1')('for minutes', () => {
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

  test(
    'frames of strangers stop neither the API nor the bill, and nobody is paid for them',
    { timeout: FRAMES_MS + 5 * MINUTE_MS },
    async () => {
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
    },
  );

  test(
    'a registry that trickles holds GPUs for a minute, by the fault of the image',
    { timeout: 10 * MINUTE_MS },
    async () => {
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
    },
  );
});
