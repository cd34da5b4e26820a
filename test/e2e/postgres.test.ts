// The main job with the control plane on PostgreSQL: rent, log in, be killed and come back, end, and the books agree.
import { join, resolve } from 'node:path';
import { afterAll, beforeAll, expect, test } from 'vitest';
import { terminate } from '../kit/api-client.ts';
import { sendAndKillAtReply, sendKeyed } from '../kit/dying-reply.ts';
import { eventually, startProgram } from '../kit/processes.ts';
import { startPostgres } from '../kit/postgres.ts';
import { openRentalStack, type RentalStack } from '../kit/rental-stack.ts';
import { makeIdentity } from '../kit/ssh-client.ts';
import { verifyLedger } from '../kit/stack.ts';

const LAUNCHER = resolve(import.meta.dirname, '../../control-plane/svc-control-plane.js');

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

test('a second control plane takes over when the first one dies: the rental goes on, and the books agree', async () => {
  const { controlPlane, customer } = stack;
  const instance = await stack.rent();
  const ssh = stack.ssh(instance);
  expect((await ssh.run('echo kept > /tmp/file')).code).toBe(0);
  // Nothing listens on its ports before it serves, so it can have those of the first one.
  const args = [LAUNCHER, 'serve', '--config', controlPlane.configPath];
  const second = startProgram({ command: process.execPath, args });
  try {
    await second.waitForOutput(/this one stands by/, 30_000);
    await controlPlane.daemon.stop('SIGKILL');
    await second.waitForOutput(/the control plane serves/, 60_000);
    const kept = await eventually('login through the second one', 60_000, async () => {
      const { code, stdout } = await ssh.run('cat /tmp/file');
      return code === 0 ? stdout.toString() : undefined;
    });
    expect(kept).toBe('kept\n');
    await terminate(customer.api, instance.id);
    await verifyLedger(controlPlane);
  } finally {
    await second.stop('SIGTERM');
    await controlPlane.daemon.start();
  }
});
