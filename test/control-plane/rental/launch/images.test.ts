// Image checks at a registry: results, refusals with their texts, and what is cached.
import { afterEach, beforeEach, describe, expect, test } from 'vitest';
import { openImages } from '../../../../control-plane/rental/launch/images.ts';
import { parseReference } from '../../../../control-plane/rental/launch/reference.ts';
import { type Clock, systemClock } from '../../../../shared/clock.ts';
import { type AskedRegistry, BASIC, LOGIN, openAskedRegistry } from './asked-registry.ts';
import { digestOf, type ScriptedRegistry, startScriptedRegistry } from './scripted-registry.ts';

let asked: AskedRegistry;
let registry: AskedRegistry['registry'];
let images: AskedRegistry['images'];
let verify: AskedRegistry['verify'];
beforeEach(async () => {
  asked = await openAskedRegistry();
  ({ registry, images, verify } = asked);
});
afterEach(() => asked.close());

describe('an image', () => {
  test('is pinned to its digest, and only whether it has a command is kept', async () => {
    const digest = registry.put('app:1', { entrypoint: ['/entry'], cmd: ['a', 'b'] });
    expect(await verify('app:1')).toEqual({ digest, hasEntrypoint: true, hasCmd: true, layersBytes: 7 });
  });

  test('is the one for linux/amd64 if an index names several, and the plain one before a variant', async () => {
    const { entries } = registry.putIndex('app', [
      { platform: 'unknown/unknown' },
      { platform: 'linux/arm64', image: { cmd: [] } },
      { platform: 'linux/amd64/v3', image: { platform: 'linux/amd64', cmd: [] } },
      { platform: 'linux/amd64', image: { cmd: ['plain'] } },
    ]);
    expect(await verify('app')).toMatchObject({ digest: entries[3], hasCmd: true });
  });

  test('that is named by a digest keeps it; one that is named by the digest of an index is the one that was verified', async () => {
    const digest = registry.put('one', { cmd: ['x'] });
    expect(await verify(`one@${digest}`)).toMatchObject({ digest, hasCmd: true });
    expect(await verify(`one:gone@${digest}`)).toMatchObject({ digest });
    const index = registry.putIndex('app', [{ image: { cmd: ['x'] } }]);
    expect(await verify(`app@${index.digest}`)).toMatchObject({ digest: index.entries[0], hasCmd: true });
  });

  test('is hashed here if its registry names no digest', async () => {
    const digest = registry.put('app', {});
    registry.tellsDigests = false;
    expect(await verify('app')).toMatchObject({ digest });
  });

  test('whose manifests are elsewhere is followed there', async () => {
    const digest = registry.put('real', { cmd: ['there'] });
    registry.first = ({ path }, response) => {
      if (!path.startsWith('/v2/app/')) return false;
      response.writeHead(307, { location: path.replace('/app/', '/real/') }).end();
      return true;
    };
    expect(await verify('app')).toMatchObject({ digest, hasCmd: true });
  });

  // Specification 4.3: An image must be for linux/amd64.
  test('is refused if it is for other platforms alone, and the answer names them', async () => {
    registry.putIndex('app', [
      { platform: 'linux/arm64/v8' },
      { platform: 'windows/amd64' },
      { platform: 'unknown/unknown' },
    ]);
    await expect(verify('app')).rejects.toMatchObject({
      code: 'image_unavailable',
      message: expect.stringContaining('linux/amd64, which hosts need; there is: linux/arm64/v8, windows/amd64.'),
    });
    registry.put('arm', { platform: 'linux/arm64' });
    await expect(verify('arm')).rejects.toThrow('is for linux/arm64; hosts need linux/amd64');
  });

  test.each([
    ['{"schemaVersion":1,"fsLayers":[]}', 'old manifest schema 1'],
    ['{"schemaVersion":2}', 'neither of Docker schema 2 nor of OCI'],
    ['not JSON', 'neither of Docker schema 2 nor of OCI'],
    ['{"config":{},"layers":[{"urls":["http://10.0.0.1/"]}]}', 'names web addresses ("urls")'],
    ['{"manifests":[{"URL\\u017f" : [ "http://10.0.0.1/"], "urls":[]}]}', 'names web addresses ("urls")'],
    ['{"urls":[],"layers":"urls","a":"\\"urls\\":[1]"}', 'neither of Docker schema 2 nor of OCI'],
  ])('with the manifest %s is refused', async (body, why) => {
    const digest = digestOf(body);
    for (const name of ['latest', digest]) {
      registry.paths.set(
        `/v2/app/manifests/${name}`,
        (_asked, response) => void response.writeHead(200, { 'docker-content-digest': digest }).end(body),
      );
    }
    await expect(verify('app')).rejects.toMatchObject({
      code: 'image_unavailable',
      message: expect.stringContaining(why),
    });
  });

  test('that is no container image is refused by its type', async () => {
    registry.put('chart', { configType: 'application/vnd.cncf.helm.config.v1+json' });
    await expect(verify('chart')).rejects.toThrow(
      'is no container image but an artifact of type application/vnd.cncf.helm',
    );
  });

  test.each(['manifests', 'blobs'])('whose %s are not what their digest says is not believed', async (kind) => {
    const digest = registry.put('app', {});
    for (const path of registry.paths.keys()) {
      if (!path.startsWith(`/v2/app/${kind}/sha256:`)) continue;
      registry.paths.set(
        path,
        (_asked, response) =>
          void response.writeHead(200, { 'docker-content-digest': digest }).end('{"schemaVersion":2}'),
      );
    }
    await expect(verify('app')).rejects.toMatchObject({
      code: 'registry_unreachable',
      message: expect.stringContaining('is something else'),
    });
  });

  test('is refused if its manifest is too large, and the manifest is not read whole', async () => {
    const digest = digestOf('x');
    registry.paths.set(
      `/v2/app/manifests/${digest}`,
      ({ method }, response) => void response.end(method === 'HEAD' ? '' : Buffer.alloc(5 * 1024 ** 2)),
    );
    await expect(verify(`app@${digest}`)).rejects.toThrow('has a manifest or configuration of more than 1048576 bytes');
  });
});

describe('a registry', () => {
  /** Asks for tokens, gives them to those who log in, and shows images only for its last token. */
  const guardByToken = (isOpen = false): void => {
    registry.put('org/app', {});
    registry.paths.set('/token', ({ authorization, query }, response) => {
      const isKnown = authorization === BASIC || (isOpen && authorization === undefined);
      const isScoped = query.get('scope') === 'repository:org/app:pull' && query.get('service') === 'here';
      response.writeHead(isKnown && isScoped ? 200 : 401).end('{"token":"t1"}');
    });
    registry.first = ({ path, authorization }, response) => {
      if (path === '/token' || authorization === 'Bearer t1') return false;
      const challenge = `Bearer realm="http://${registry.host}/token",service="here",scope="repository:org/app:pull,push"`;
      response.writeHead(401, { 'www-authenticate': challenge }).end();
      return true;
    };
  };
  const guardByBasic = (): void => {
    registry.put('org/app', {});
    registry.first = ({ authorization }, response) => {
      if (authorization === BASIC) return false;
      response.writeHead(401, { 'www-authenticate': 'Basic realm="here"' }).end();
      return true;
    };
  };

  test('that asks for a token gets one for this repository alone, anonymously or with the login', async () => {
    guardByToken(true);
    expect(await verify('org/app')).toMatchObject({ hasCmd: true });
    registry.asked.length = 0;
    guardByToken();
    expect(await verify('org/app', LOGIN)).toMatchObject({ hasCmd: true });
    expect(registry.asked.filter(({ path }) => path === '/token')).toHaveLength(1);
    expect(registry.asked.filter(({ authorization }) => authorization === BASIC).map(({ path }) => path)).toEqual([
      '/token',
    ]);
  });

  test('that knows only Basic gets the login, and nothing without one', async () => {
    guardByBasic();
    expect(await verify('org/app', LOGIN)).toMatchObject({ hasCmd: true });
    await expect(verify('org/app')).rejects.toMatchObject({
      code: 'image_unavailable',
      message: expect.stringContaining('does not exist or is private; check its name, or name a stored login'),
    });
  });

  // Specification 4.3: A wrong login fails before anything is made, with 422 image_unavailable.
  test.each([
    ['token', guardByToken],
    ['Basic', guardByBasic],
  ])('that takes no wrong login for %s says so, and the login is not in the message', async (_kind, guard) => {
    guard();
    const wrong = { ...LOGIN, password: 'wr0ng' };
    const refusal = await verify('org/app', wrong).catch((error: unknown) => error);
    expect(refusal).toMatchObject({ code: 'image_unavailable', details: { errors: [{ field: 'image' }] } });
    expect(String(refusal)).toContain('cannot be pulled with this registry credential: its login is wrong');
    expect(JSON.stringify(refusal)).not.toContain('wr0ng');
  });

  test('gives hosts a token, the login if it knows no tokens, and nothing if it asks for nothing', async () => {
    const reference = parseReference(`${registry.host}/org/app`);
    registry.put('org/app', {});
    expect(await images.pullLogin(reference, LOGIN)).toBeNull();
    guardByToken();
    expect(await images.pullLogin(reference, LOGIN)).toEqual({ kind: 'bearer', token: 't1' });
    guardByBasic();
    expect(await images.pullLogin(reference, LOGIN)).toEqual({ kind: 'basic', username: 'me', password: 'pass:word' });
  });

  // Specification 7.2: A registry that answers with an error, or limits us, is an outage.
  test.each([
    [404, 'image_unavailable', 'does not exist in its registry', undefined],
    [403, 'image_unavailable', 'does not exist or is private', undefined],
    [400, 'image_unavailable', 'refused by its registry with status 400', undefined],
    [429, 'registry_unreachable', 'too many requests', 7],
    [500, 'registry_unreachable', 'status 500', 7],
    [503, 'registry_unreachable', 'status 503', 7],
  ])('that answers %d is %s', async (status, code, why, retryAfterSeconds) => {
    registry.first = (_asked, response) => {
      response.writeHead(status, { 'retry-after': '7' }).end();
      return true;
    };
    const refusal = await verify('app').catch((error: unknown) => error);
    expect(refusal).toMatchObject({ code, details: retryAfterSeconds === undefined ? {} : { retryAfterSeconds } });
    expect(String(refusal)).toContain(why);
    expect(registry.asked).toHaveLength(1);
  });

  test('that breaks off is asked once more, and then reported', async () => {
    registry.put('app', {});
    let cuts = 1;
    registry.first = (_asked, response) => {
      if (cuts === 0) return false;
      cuts -= 1;
      response.destroy();
      return true;
    };
    expect(await verify('app')).toMatchObject({ hasCmd: true });
    cuts = 2;
    asked.skip(61_000);
    await expect(verify('app')).rejects.toMatchObject({
      code: 'registry_unreachable',
      details: { retryAfterSeconds: 10 },
    });
  });

  test('that hangs is reported after ten seconds, which are over here once it was asked', async () => {
    const real = systemClock();
    const isAsked = Promise.withResolvers<void>();
    const hurried: Clock = {
      ...real,
      after: (ms, fn) => {
        if (ms !== 10_000) return real.after(ms, fn);
        let isCancelled = false;
        void isAsked.promise.then(() => (isCancelled ? undefined : fn()));
        return () => (isCancelled = true);
      },
    };
    const hasty = openImages([{ host: registry.host, plainHttp: true }], { clock: hurried });
    registry.first = () => {
      isAsked.resolve();
      return true;
    };
    const refusal = hasty.verify(parseReference(`${registry.host}/app`), undefined);
    await expect(refusal).rejects.toMatchObject({
      code: 'registry_unreachable',
      message: expect.stringContaining('10000 ms'),
    });
    expect(registry.asked).toHaveLength(1);
    await hasty.close();
  });

  test('receives a User-Agent', async () => {
    registry.put('app', {});
    await verify('app');
    expect(new Set(registry.asked.map(({ userAgent }) => userAgent))).toEqual(new Set(['svc-control-plane']));
  });

  test('that is down is reported at once', async () => {
    await registry.stop();
    await expect(verify('app')).rejects.toMatchObject({ code: 'registry_unreachable' });
  });

  test('with an unknown kind of challenge is reported', async () => {
    registry.first = (_asked, response) => {
      response.writeHead(401, { 'www-authenticate': 'Negotiate' }).end();
      return true;
    };
    await expect(verify('app')).rejects.toThrow('it asks for a login of a kind that is not known here');
  });
});

describe('a private address is never called', () => {
  let inside: ScriptedRegistry;
  beforeEach(async () => {
    inside = await startScriptedRegistry();
  });
  afterEach(() => inside.stop());
  const refusal = { code: 'image_reference_invalid', details: { errors: [{ field: 'image' }] } };

  // Specification 4.3: A localhost or private-IP registry gives 400.
  test.each([
    'localhost/app',
    'localhost:5000/app',
    'x.localhost/app',
    '127.0.0.1/app',
    '127.1:80/app',
    '10.0.0.1:5000/app',
    '169.254.169.254/app',
    '[::1]:5000/app',
    '[::ffff:10.0.0.1]/app',
    '0x7f.1/app',
  ])('%s is refused without a request', async (name) => {
    const reference = parseReference(name);
    await expect(images.verify(reference, undefined)).rejects.toMatchObject(refusal);
    expect(images.mayAsk(reference.registry)).toBe(false);
  });

  test('registries with a public name, and those that the operator has named, may be asked', () => {
    for (const name of ['docker.io', 'localhost.example.com', registry.host]) expect(images.mayAsk(name)).toBe(true);
  });

  test('a name that resolves to a private address is refused', async () => {
    const resolving = openImages([], { clock: systemClock(), resolve: async () => ['10.1.2.3'] });
    await expect(resolving.verify(parseReference('images.example.com/app'), undefined)).rejects.toMatchObject(refusal);
    await resolving.close();
  });

  test('a token server at an address that nobody has named is not asked', async () => {
    registry.first = (_asked, response) => {
      response.writeHead(401, { 'www-authenticate': `Bearer realm="http://${inside.host}/token"` }).end();
      return true;
    };
    await expect(verify('app', LOGIN)).rejects.toMatchObject(refusal);
    expect(inside.asked).toEqual([]);
  });

  test('a redirect of a blob to such an address is not followed', async () => {
    registry.put('app', {});
    for (const path of registry.paths.keys()) {
      if (path.includes('/blobs/')) {
        registry.paths.set(
          path,
          (_asked, response) => void response.writeHead(307, { location: `http://${inside.host}/x` }).end(),
        );
      }
    }
    await expect(verify('app')).rejects.toMatchObject(refusal);
    expect(inside.asked).toEqual([]);
  });

  test('a redirect of a blob is followed without the Authorization header, and not for ever', async () => {
    const trusting = openImages(
      [registry, inside].map(({ host }) => ({ host, plainHttp: true })),
      { clock: systemClock() },
    );
    registry.put('app', {});
    registry.first = ({ authorization }, response) => {
      if (authorization !== undefined) return false;
      response.writeHead(401, { 'www-authenticate': 'Basic realm="here"' }).end();
      return true;
    };
    for (const [path, respond] of registry.paths) {
      if (!path.includes('/blobs/')) continue;
      registry.paths.set(
        path,
        (_asked, response) => void response.writeHead(307, { location: `http://${inside.host}${path}` }).end(),
      );
      inside.paths.set(path, respond);
    }
    const reference = parseReference(`${registry.host}/app`);
    expect(await trusting.verify(reference, LOGIN)).toMatchObject({ hasCmd: true });
    expect(inside.asked.map(({ authorization }) => authorization)).toEqual([undefined]);

    inside.first = ({ path }, response) => {
      response.writeHead(307, { location: path }).end();
      return true;
    };
    registry.put('loop', { cmd: ['loop'] });
    for (const path of registry.paths.keys()) {
      if (path.startsWith('/v2/loop/blobs/'))
        registry.paths.set(
          path,
          (_asked, response) => void response.writeHead(307, { location: `http://${inside.host}/loop` }).end(),
        );
    }
    const looping = trusting.verify(parseReference(`${registry.host}/loop`), LOGIN);
    await expect(looping).rejects.toMatchObject({ code: 'image_unavailable' });
    await trusting.close();
  });
});
