// The cache of registry answers: what is kept, for how long and for whom, and how many requests run at once.
import type { ServerResponse } from 'node:http';
import { afterEach, beforeEach, describe, expect, test } from 'vitest';
import { type AskedRegistry, BASIC, LOGIN, openAskedRegistry } from './asked-registry.ts';
import { parseReference } from '../../../../control-plane/rental/launch/reference.ts';
import type { Asked } from './scripted-registry.ts';

let asked: AskedRegistry;
let registry: AskedRegistry['registry'];
let verify: AskedRegistry['verify'];
beforeEach(async () => {
  asked = await openAskedRegistry();
  ({ registry, verify } = asked);
});
afterEach(() => asked.close());
const requests = (): string[] => registry.asked.map(({ method, path }) => `${method} ${path}`);

describe('answers are kept', () => {
  const heads = (): Asked[] => registry.asked.filter(({ method }) => method === 'HEAD');

  test('for a minute for a tag; the contents of a digest are not read again', async () => {
    registry.put('app', {});
    await verify('app');
    asked.skip(59_000);
    await verify('app');
    expect(heads()).toHaveLength(1);
    asked.skip(2_000);
    const before = registry.asked.length;
    await verify('app');
    expect(requests().slice(before)).toEqual(['HEAD /v2/app/manifests/latest']);
    const moved = registry.put('app', { cmd: ['new'] });
    asked.skip(61_000);
    expect(await verify('app')).toMatchObject({ digest: moved, hasCmd: true });
  });

  test('and contents that are known are read by nobody again, so nobody is asked whether they may be', async () => {
    const digest = registry.put('app', {});
    let reads = 0;
    const read = (name: string) =>
      asked.images.verify(parseReference(`${registry.host}/${name}`), undefined, { onRead: () => void (reads += 1) });
    await read('app');
    await read(`app@${digest}`);
    asked.skip(61_000);
    await read('app');
    expect(reads).toBe(1);
  });

  test('and nobody who may not launch makes a registry answer, but what is known is known to all', async () => {
    registry.put('app', {});
    const reference = parseReference(`${registry.host}/app`);
    const mayAsk = (): Promise<void> => Promise.reject(new Error('no money'));
    await expect(asked.images.verify(reference, undefined, { mayAsk })).rejects.toThrow('no money');
    expect(requests()).toEqual([]);
    await verify('app');
    expect(await asked.images.verify(reference, undefined, { mayAsk })).toMatchObject({ hasCmd: true });
  });

  test('for ten seconds for a refusal', async () => {
    await expect(verify('app')).rejects.toThrow('does not exist');
    registry.put('app', {});
    asked.skip(9_000);
    await expect(verify('app')).rejects.toThrow('does not exist');
    asked.skip(2_000);
    expect(await verify('app')).toMatchObject({ hasCmd: true });
  });

  test('for each credential by itself: what one may pull, another must prove', async () => {
    const digest = registry.put('app', {});
    registry.first = ({ authorization }, response) => {
      if (authorization === BASIC) return false;
      response.writeHead(401, { 'www-authenticate': 'Basic realm="here"' }).end();
      return true;
    };
    await verify(`app@${digest}`, LOGIN);
    await expect(verify(`app@${digest}`)).rejects.toMatchObject({ code: 'image_unavailable' });
    const other = { credentialId: 'rc_2', username: 'x', password: 'y' };
    await expect(verify(`app@${digest}`, other)).rejects.toMatchObject({ code: 'image_unavailable' });
  });

  test('so that fifty equal questions at once are one', async () => {
    registry.put('app', {});
    await Promise.all(Array.from({ length: 50 }, () => verify('app')));
    expect(heads()).toHaveLength(1);
  });
});

test('at most eight checks of a registry run at once', async () => {
  const held: ServerResponse[] = [];
  let most = 0;
  registry.first = (_asked, response) => {
    most = Math.max(most, held.push(response));
    // All answers go out together once nobody else can come.
    if (held.length === 8) for (const one of held.splice(0)) one.writeHead(404).end();
    return true;
  };
  await Promise.all(Array.from({ length: 40 }, (_, i) => verify(`app${i}`).catch(() => undefined)));
  expect(registry.asked).toHaveLength(40);
  expect(most).toBe(8);
});
