// The peer of an API bench: fastify with bare handlers on a copy of the service's database. Reads send rows as they come from SQL;
// a launch is the room's own transaction, without checks of the request, Idempotency-Key and answer.
import { createHash } from 'node:crypto';
import type { AddressInfo } from 'node:net';
import Database from 'better-sqlite3';
import { fastify } from 'fastify';
import { openSqlite } from '../../../control-plane/base/db/sqlite.ts';
import { CreateInstance } from '../../../shared/api/instance.ts';
import { systemClock } from '../../../shared/clock.ts';
import { openBareRooms } from '../rooms.ts';
import { type Answer, type Order, serveOrders } from '../side.ts';

serveOrders(serve);

async function serve(order: Order): Promise<Answer> {
  const file = String(order['file']);
  const clock = systemClock();
  const sshPorts = { first: Number(order['firstPort']), last: Number(order['lastPort']) };
  const { rooms } = openBareRooms({ db: openSqlite(file, { clock }), clock }, sshPorts);
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
