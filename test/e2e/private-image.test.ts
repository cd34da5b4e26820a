// A private image with a stored login, on a real registry and engine. An image that cannot be pulled costs nothing.
import { afterAll, beforeAll, expect, test } from 'vitest';
import { Instance } from '../../shared/api/instance.ts';
import { Balance } from '../../shared/api/billing.ts';
import { pageSchema } from '../../shared/api/page.ts';
import { RegistryCredential } from '../../shared/api/registry-credential.ts';
import { terminate } from '../kit/api-client.ts';
import { capture } from '../kit/capture.ts';
import { LOGIN } from '../kit/registry.ts';
import { ONE_GPU, openRentalStack, type RentalStack } from '../kit/rental-stack.ts';
import { openCustomer, verifyLedger } from '../kit/stack.ts';

let stack: RentalStack;
beforeAll(async () => {
  stack = await openRentalStack();
});
afterAll(async () => {
  expect(await stack.end()).toEqual([]);
});

/** The same image in a registry that requires a login. */
const privateRef = (): string => stack.image.ref.replace(stack.registry.host, stack.guarded.host);

async function credential(password = LOGIN.password): Promise<string> {
  const body = { name: 'ci', registry: stack.guarded.host, username: LOGIN.username, password };
  return (await stack.customer.api.post('/registry-credentials', body, RegistryCredential)).id;
}

const filesWith = async (text: string): Promise<string> =>
  (await capture(['grep', '-rlsF', text, stack.dir])).stdout.toString();

// Specification 4.3: A private image is launched with registry_credential_id.
test('a private image runs with a stored login, pinned to its digest, and no file has the password', async () => {
  const instance = await stack.rent({ image: privateRef(), registry_credential_id: await credential() });
  expect(instance.image).toBe(stack.image.pinnedRef.replace(stack.registry.host, stack.guarded.host));
  expect((await stack.ssh(instance).run('hostname')).stdout.toString()).toBe(`${instance.id}\n`);
  // The search covers the state, logs and databases of everybody, and the engine's own folders. The name of the login is no secret.
  expect(await filesWith(LOGIN.username)).toContain('control-plane.db');
  expect(await filesWith(LOGIN.password)).toBe('');
  await terminate(stack.customer.api, instance.id);
});

test('an organisation without the login does not get the image that the host has already', async () => {
  const other = await openCustomer(stack, 'other');
  const request = { ...ONE_GPU, image: privateRef() };
  await expect(other.api.post('/instances', request, Instance)).rejects.toThrow('422 image_unavailable');
});

test.each([
  ['without a login', async () => ({ image: privateRef() }), '422 image_unavailable'],
  [
    'with a wrong login',
    async () => ({ image: privateRef(), registry_credential_id: await credential('wrong') }),
    '422 image_unavailable',
  ],
  ['that does not exist', async () => ({ image: `${stack.registry.host}/none` }), '422 image_unavailable'],
  ['at a registry that nobody has allowed', async () => ({ image: '127.0.0.1:1/app' }), '400 image_reference_invalid'],
])('an image %s is refused, and nothing is created or billed', async (_what, image, refusal) => {
  const { api } = stack.customer;
  const before = await api.get('/balance', Balance);
  const count = (await api.get('/instances', pageSchema(Instance))).data.length;
  await expect(api.post('/instances', { ...ONE_GPU, ...(await image()) }, Instance)).rejects.toThrow(refusal);
  expect(await api.get('/balance', Balance)).toEqual(before);
  expect((await api.get('/instances', pageSchema(Instance))).data).toHaveLength(count);
  await verifyLedger(stack.controlPlane);
});
