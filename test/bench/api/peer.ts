// The peer of an API bench: fastify with bare handlers on a copy of the service's database. Reads send rows as they come from SQL;
// a launch is the room's own transaction, without checks of the request, Idempotency-Key and answer.
import { createHash } from 'node:crypto';
import type { AddressInfo } from 'node:net';
import Database from 'better-sqlite3';
import { fastify } from 'fastify';
import { openDiskBlobs } from '../../../control-plane/base/blobs/local-disk.ts';
import { openPresignedUrls } from '../../../control-plane/base/blobs/presigned-urls.ts';
import { openUrlKeys } from '../../../control-plane/base/blobs/url-keys.ts';
import { openSqlite } from '../../../control-plane/base/db/sqlite.ts';
import { openSealing } from '../../../control-plane/base/http/sealing.ts';
import { openOutbound } from '../../../control-plane/base/outbound/outbound.ts';
import { readEnvironments } from '../../../control-plane/rental/launch/environments.ts';
import { readTemplates } from '../../../control-plane/rental/launch/templates.ts';
import { openRooms, type Rooms } from '../../../control-plane/rooms.ts';
import { CreateInstance } from '../../../shared/api/instance.ts';
import { systemClock } from '../../../shared/clock.ts';
import { createIds } from '../../../shared/ids.ts';
import { createLog } from '../../../shared/log.ts';
import { systemRng } from '../../../shared/rng.ts';
import { fakeImages, fakeModelHub } from '../../kit/fake-hubs.ts';
import { type Answer, type Order, serveOrders } from '../side.ts';

serveOrders(serve);

async function serve(order: Order): Promise<Answer> {
  const file = String(order['file']);
  const rooms = openBareRooms(file, { first: Number(order['firstPort']), last: Number(order['lastPort']) });
  const reader = new Database(file, { readonly: true });
  const offerings = reader.prepare(
    `select id, gpu_type, region, tier, price_ucents_per_hour, gpu_free, vram_gb, storage_gb, disk_configurable,
       disk_price_ucents_per_gb_hour, created_ms
     from offerings where listed = 1 and tier = 'on_demand' order by created_ms desc, id desc limit 51`,
  );
  const keys = reader.prepare('select * from api_keys where key_hash = ?');
  const instances = reader.prepare(
    'select * from instances where org_id = ? order by created_ms desc, id desc limit 51',
  );
  const endpoints = reader.prepare('select * from endpoints where instance_id in (select value from json_each(?))');
  const app = fastify();
  app.get('/v1/pricing', async () => ({ data: offerings.all() }));
  const callerOf = ({ authorization = '' }: { authorization?: string | undefined }): { id: string; org_id: string } => {
    const hash = createHash('sha256').update(authorization.slice('Bearer '.length)).digest('hex');
    return keys.get(hash) as { id: string; org_id: string };
  };
  app.get('/v1/instances', async ({ headers }) => {
    const { org_id: orgId } = callerOf(headers);
    const data = instances.all(orgId) as { id: string }[];
    return { data, endpoints: endpoints.all(JSON.stringify(data.map(({ id }) => id))) };
  });
  app.post('/v1/instances', async ({ headers, body }, reply) => {
    const { id: principalId, org_id: orgId } = callerOf(headers);
    const caller = { orgId, principalId };
    const operation = await rooms.instances.create(caller, CreateInstance.parse(body), async () => undefined);
    return reply.code(202).send(operation);
  });
  await app.listen({ host: '127.0.0.1', port: 0 });
  return { port: (app.server.address() as AddressInfo).port };
}

/** Nothing is around them: no host, no registry, no loop. */
function openBareRooms(file: string, sshPorts: { first: number; last: number }): Rooms {
  const [clock, rng] = [systemClock(), systemRng()];
  const ids = createIds(clock, rng);
  const db = openSqlite(file, { clock });
  const log = createLog('peer', 'silent');
  const none = (): void => undefined;
  const urlKeys = openUrlKeys({ db, clock, ids });
  const presignedUrls = openPresignedUrls({
    secret: new Uint8Array(32),
    baseUrl: 'http://127.0.0.1/v1',
    keys: urlKeys,
  });
  return openRooms(
    { db, clock, ids, rng, log, sealing: openSealing(rng.bytes(32), ids) },
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
      nudges: { engine: none, edge: none, watch: none, webhooks: none },
      mail: { send: async () => false },
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
}
