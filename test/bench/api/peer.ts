// The peer of an API bench: fastify with bare handlers on a copy of the service's database. Lists have the rows and members
// of the service's lists. A launch is the room's own transaction, without checks of the request, Idempotency-Key and answer.
import { createHash } from 'node:crypto';
import type { AddressInfo } from 'node:net';
import Database from 'better-sqlite3';
import { fastify } from 'fastify';
import { openSqlite } from '../../../control-plane/base/db/sqlite.ts';
import { CreateInstance } from '../../../shared/api/instance.ts';
import { PAGE_DEFAULT } from '../../../shared/limits.ts';
import { systemClock } from '../../../shared/clock.ts';
import { openBareRooms } from '../rooms.ts';
import { type Answer, type Order, serveOrders } from '../side.ts';

interface Priced {
  offering_id: string;
  disk_configurable: number;
}

interface Launched {
  id: string;
  status: string;
  created_ms: number;
  ready_ms: number | null;
  terminated_ms: number | null;
}

serveOrders(serve);

function textOf(ms: number | null): string | null {
  return ms === null ? null : new Date(ms).toISOString();
}

async function serve(order: Order): Promise<Answer> {
  const file = String(order['file']);
  const clock = systemClock();
  const sshPorts = { first: Number(order['firstPort']), last: Number(order['lastPort']) };
  const { rooms } = openBareRooms({ db: openSqlite(file, { clock }), clock }, sshPorts);
  const reader = new Database(file, { readonly: true });
  const offerings = reader.prepare(
    `select id as offering_id, gpu_type, region, tier, price_ucents_per_hour / 1e8 as price_per_hour, gpu_free as available, vram_gb, cpu_cores,
       ram_gb, storage_gb, host_gpu_count, disk_configurable, disk_price_ucents_per_gb_hour / 1e8 as disk_price_per_gb_hour
     from offerings where listed = 1 and tier = 'on_demand' order by created_ms desc, id desc limit ${PAGE_DEFAULT + 1}`,
  );
  const keys = reader.prepare('select * from api_keys where key_hash = ?');
  const instances = reader.prepare(
    `select id, status, gpu_type, gpu_count, region, tier, price_ucents_per_hour / 1e8 as price_per_hour, created_ms, name, ready_ms, terminated_ms,
       shown ->> 'image' as image, reservation_id
     from instances where org_id = ? order by created_ms desc, id desc limit ${PAGE_DEFAULT + 1}`,
  );
  const endpoints = reader.prepare('select * from endpoints where instance_id in (select value from json_each(?))');
  const app = fastify();
  app.get('/v1/pricing', async () => {
    const rows = (offerings.all() as Priced[]).slice(0, PAGE_DEFAULT);
    const data = rows.map((row) => ({ ...row, disk_configurable: row.disk_configurable === 1 }));
    return { data, next_cursor: rows.at(-1)?.offering_id };
  });
  const callerOf = ({ authorization = '' }: { authorization?: string | undefined }): { id: string; org_id: string } => {
    const hash = createHash('sha256').update(authorization.slice('Bearer '.length)).digest('hex');
    return keys.get(hash) as { id: string; org_id: string };
  };
  app.get('/v1/instances', async ({ headers }) => {
    const { org_id: orgId } = callerOf(headers);
    const rows = (instances.all(orgId) as Launched[]).slice(0, PAGE_DEFAULT);
    const open = endpoints.all(JSON.stringify(rows.map(({ id }) => id))) as { instance_id: string }[];
    const endpointOf = new Map(open.map((endpoint) => [endpoint.instance_id, endpoint]));
    const data = rows.map(({ created_ms: createdMs, ready_ms: readyMs, terminated_ms: terminatedMs, ...row }) => ({
      ...row,
      created_at: textOf(createdMs),
      ready_at: textOf(readyMs),
      terminated_at: textOf(terminatedMs),
      connection: row.status === 'running' ? endpointOf.get(row.id) : null,
    }));
    return { data, next_cursor: rows.at(-1)?.id };
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
