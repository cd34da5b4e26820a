// The image check against Debian's docker-registry: open, behind a password file, behind a token server, and down.
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import {
  type ImageFacts,
  type ImageLogin,
  type Images,
  openImages,
} from '../../../../control-plane/rental/launch/images.ts';
import { parseReference } from '../../../../control-plane/rental/launch/reference.ts';
import { systemClock } from '../../../../shared/clock.ts';
import { pushIndex, scratchImage, type TestImage } from '../../../kit/images.ts';
import { type Guarded, LOGIN, type Registry, startRegistry } from '../../../kit/registry.ts';
import { startTokenServer, type TokenServer } from '../../../kit/token-server.ts';

const RIGHT: ImageLogin = { credentialId: 'right', ...LOGIN };
const WRONG: ImageLogin = { ...RIGHT, credentialId: 'wrong', password: 'wrong' };

let registry: Registry;
let byPassword: Guarded;
let byToken: Guarded;
let tokens: TokenServer;
let images: Images;
let image: TestImage;

beforeAll(async () => {
  registry = await startRegistry();
  tokens = await startTokenServer();
  byPassword = await registry.guarded({ kind: 'basic' });
  byToken = await registry.guarded(tokens.auth);
  image = await scratchImage(registry, { name: 'org/app' });
  const named = [registry, byPassword, byToken, tokens].map(({ host }) => ({ host, plainHttp: true }));
  images = openImages(named, { clock: systemClock() });
});
afterAll(async () => {
  await images.close();
  await byPassword.stop();
  await byToken.stop();
  await tokens.stop();
  await registry.stop();
});

const verify = ({ host }: { host: string }, name: string, login?: ImageLogin): Promise<ImageFacts> =>
  images.verify(parseReference(`${host}/${name}`), login);

describe('an open registry', () => {
  test('shows an image by its tag and by its digest', async () => {
    const facts = { digest: image.digest, hasEntrypoint: true, hasCmd: false };
    expect(await verify(registry, 'org/app:latest')).toMatchObject(facts);
    expect(await verify(registry, `org/app@${image.digest}`)).toMatchObject(facts);
  });

  test('has no such tag, repository or digest', async () => {
    for (const name of ['org/app:none', 'org/none', `org/app@sha256:${'0'.repeat(64)}`]) {
      await expect(verify(registry, name)).rejects.toMatchObject({ code: 'image_unavailable' });
    }
  });

  test('has an image for several architectures: ours is meant, and without one the others are named', async () => {
    const arm = await scratchImage(registry, { name: 'multi', tag: 'arm', architecture: 'arm64' });
    const amd = await scratchImage(registry, { name: 'multi', tag: 'amd', architecture: 'amd64' });
    const both = [
      { architecture: 'arm64', digest: arm.digest },
      { architecture: 'amd64', digest: amd.digest },
    ];
    const index = await pushIndex(registry, 'multi', both);
    expect(await verify(registry, 'multi')).toMatchObject({ digest: amd.digest });
    expect(await verify(registry, `multi@${index.digest}`)).toMatchObject({ digest: amd.digest });
    const foreign = await scratchImage(registry, { name: 'foreign', tag: 'arm', architecture: 'arm64' });
    await pushIndex(registry, 'foreign', [{ architecture: 'arm64', digest: foreign.digest }]);
    await expect(verify(registry, 'foreign')).rejects.toThrow('there is: linux/arm64');
  });
});

describe.each([
  ['a password file', () => byPassword, { kind: 'basic', ...LOGIN }],
  ['a token server', () => byToken, { kind: 'bearer', token: expect.stringMatching(/^[\w-]+\.[\w-]+\.[\w-]+$/) }],
])('a registry behind %s', (_what, guarded, login) => {
  // Specification 4.3: An image must be publicly pullable unless a login is named.
  // Specification 7.2: image_unavailable: a failed registry login, at a real registry.
  test('shows the image to the right login alone', async () => {
    expect(await verify(guarded(), 'org/app', RIGHT)).toMatchObject({ digest: image.digest });
    await expect(verify(guarded(), 'org/app')).rejects.toThrow('name a stored login as registry_credential_id');
    await expect(verify(guarded(), 'org/app', WRONG)).rejects.toThrow('its login is wrong');
    await expect(verify(guarded(), 'org/none', RIGHT)).rejects.toMatchObject({ code: 'image_unavailable' });
  });

  test('gives hosts what they pull with', async () => {
    const reference = parseReference(`${guarded().host}/org/app@${image.digest}`);
    expect(await images.pullLogin(reference, RIGHT)).toEqual(login);
    await expect(images.pullLogin(reference, WRONG)).rejects.toMatchObject({ code: 'image_unavailable' });
  });
});

test('tokens are asked for with the right to pull this repository, and nothing else', () => {
  expect(new Set(tokens.scopes)).toEqual(new Set(['repository:org/app:pull', 'repository:org/none:pull']));
});

test('a registry that is down is an outage, not a missing image', async () => {
  const gone = await registry.guarded({ kind: 'basic' });
  await gone.stop();
  const named = openImages([{ host: gone.host, plainHttp: true }], { clock: systemClock() });
  const refusal = named.verify(parseReference(`${gone.host}/org/app`), RIGHT);
  await expect(refusal).rejects.toMatchObject({ code: 'registry_unreachable', details: { retryAfterSeconds: 10 } });
  await named.close();
});
