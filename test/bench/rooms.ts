// The rooms of the control plane alone, for a bench that calls them itself.
import { openDiskBlobs } from '../../control-plane/base/blobs/local-disk.ts';
import { openPresignedUrls } from '../../control-plane/base/blobs/presigned-urls.ts';
import { openUrlKeys } from '../../control-plane/base/blobs/url-keys.ts';
import { openSealing } from '../../control-plane/base/http/sealing.ts';
import { openOutbound } from '../../control-plane/base/outbound/outbound.ts';
import { readEnvironments } from '../../control-plane/rental/launch/environments.ts';
import { readTemplates } from '../../control-plane/rental/launch/templates.ts';
import { createIds } from '../../shared/ids.ts';
import { createLog } from '../../shared/log.ts';
import { systemRng } from '../../shared/rng.ts';
import { fakeImages, fakeModelHub } from '../kit/fake-hubs.ts';
import { openRooms, type Rooms } from '../../control-plane/rooms.ts';
import type { Core } from '../../control-plane/settings.ts';

/** Nothing is around them: no host, no registry, no loop. */
export function openBareRooms(
  { db, clock }: Pick<Core, 'db' | 'clock'>,
  sshPorts: { first: number; last: number },
): { rooms: Rooms; core: Core } {
  const rng = systemRng();
  const ids = createIds(clock, rng);
  const log = createLog('peer', 'silent');
  const core = { db, clock, ids, rng, log, sealing: openSealing(rng.bytes(32), ids) };
  const none = (): void => undefined;
  const urlKeys = openUrlKeys({ db, clock, ids });
  const presignedUrls = openPresignedUrls({
    secret: new Uint8Array(32),
    baseUrl: 'http://127.0.0.1/v1',
    keys: urlKeys,
  });
  const rooms = openRooms(
    core,
    {
      origin: 'http://127.0.0.1',
      signUpPolicy: 'closed',
      oidc: undefined,
      platformFeeBps: 1_500,
      launchHoldMinutes: 10,
      earningsDelayMs: 172_800_000,
      payouts: { every: 'week', minimumUcents: 2_500_000_000n, destinationDelayMs: 172_800_000 },
      reservationLeadMs: 86_400_000,
      lossBounds: {
        orgCreditsUcents: 10_000_000_000n,
        supplierCreditsUcents: 50_000_000_000n,
        supplierPaymentsUcents: 50_000_000_000n,
      },
      openLaunchesPerOrg: 1_000_000,
      unpaidGpuHoursPerOrg: 1_000_000,
      diskPriceUcentsPerGbHour: 0n,
      hostnameOf: (id) => `${id}.ssh.localhost`,
      appSite: undefined,
      sshPorts,
      sshHost: '127.0.0.1',
      presets: { templates: readTemplates(undefined), environments: readEnvironments(undefined) },
      webhookMaxAttempts: 5,
      models: [],
      openVideosPerOrg: 1,
      videoBytesMax: 1,
      openInferenceRequestsPerKey: 64,
      openInferenceRequestsPerOrg: 256,
      fileBytesMax: 0,
      fileBytesPerOrg: 0,
    },
    {
      hasRoom: () => true,
      listens: () => true,
      endsSlowly: () => false,
      members: { id: ids.uuid(), others: async () => new Set() },
      nudges: { engine: none, edge: none, watch: none, webhooks: none },
      mail: { isConfigured: false, send: async () => false },
      webhookOutbound: openOutbound({ ports: 'any', privateNetworks: [], namedHosts: [] }, { clock }),
      images: fakeImages(),
      modelHub: fakeModelHub(),
      storage: {
        blobs: openDiskBlobs('/nonexistent', { clock, ids, log, presignedUrls, reserve: { share: 0, bytes: 0 } }),
        presignedUrls,
        urlKeys,
      },
    },
  );
  return { rooms, core };
}
