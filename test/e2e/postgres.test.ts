// The main job with the control plane on PostgreSQL: rent, log in, be killed and come back, end, and the books agree.
import { join } from 'node:path';
import { afterAll, beforeAll, expect, test } from 'vitest';
import { terminate } from '../kit/api-client.ts';
import { sendAndKillAtReply, sendKeyed } from '../kit/dying-reply.ts';
import { eventually } from '../kit/processes.ts';
import { startPostgres } from '../kit/postgres.ts';
import { openRentalStack, type RentalStack } from '../kit/rental-stack.ts';
import { makeIdentity } from '../kit/ssh-client.ts';
import { verifyLedger } from '../kit/stack.ts';

let postgres: Awaited<ReturnType<typeof startPostgres>>;
let stack: RentalStack;

beforeAll(async () => {
  postgres = await startPostgres();
  stack = await openRentalStack({ postgresUrl: postgres.url });
});

afterAll(async () => {
  const wrong = await stack.end();
  await postgres.stop();
  expect(wrong).toEqual([]);
});

test('an instance is rented, survives a control plane that is killed while it answers, and ends with the books in order', async () => {
  const instance = await stack.rent();
  const ssh = stack.ssh(instance);
  expect((await ssh.run('hostname')).stdout.toString()).toBe(`${instance.id}\n`);
  const idempotencyKey = 'cut off';
  const { publicKey } = await makeIdentity(join(stack.dir, 'ssh'), 'second');
  const asked = { method: 'POST', path: '/ssh-keys', body: { name: 'second', public_key: publicKey } } as const;
  const request = { ...asked, apiKey: stack.customer.key, idempotencyKey };
  const answer = await sendAndKillAtReply(stack.controlPlane, request);
  // The lease of the dead process must expire first, because nothing else proves its death on PostgreSQL.
  await stack.controlPlane.daemon.start();
  await eventually('login after the restart', 30_000, async () =>
    (await ssh.run('true')).code === 0 ? true : undefined,
  );
  expect(answer).toMatchObject({ status: 201, isReplay: false });
  expect(await sendKeyed(stack.controlPlane, request)).toEqual({ ...answer, isReplay: true });
  await terminate(stack.customer.api, instance.id);
  await verifyLedger(stack.controlPlane);
});
