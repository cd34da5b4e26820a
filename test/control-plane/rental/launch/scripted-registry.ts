// A registry on the loopback interface whose answers a test writes, and which remembers what it was asked.
import { createHash } from 'node:crypto';
import { once } from 'node:events';
import { createServer, type IncomingMessage, type ServerResponse } from 'node:http';
import type { AddressInfo } from 'node:net';

export interface Asked {
  method: string;
  path: string;
  query: URLSearchParams;
  authorization: string | undefined;
  userAgent: string | undefined;
}

export type Respond = (asked: Asked, response: ServerResponse) => void;

export interface ScriptedRegistry {
  /** `127.0.0.1:port` */
  host: string;
  asked: Asked[];
  /** Path -> answer; a path that is not here is 404. */
  paths: Map<string, Respond>;
  /** Runs before every answer; true if it has answered. */
  first: (asked: Asked, response: ServerResponse) => boolean;
  /** Whether manifests come with the header that says their digest. */
  tellsDigests: boolean;
  /** Puts an image there under a tag and its digest, and returns that. */
  put(name: string, image?: ImageSketch): string;
  /** Puts an index of images there. */
  putIndex(name: string, entries: { platform?: string; image?: ImageSketch }[]): { digest: string; entries: string[] };
  stop(): Promise<void>;
}

export interface ImageSketch {
  platform?: string;
  entrypoint?: string[];
  cmd?: string[];
  configType?: string;
}

const OCI = 'application/vnd.oci.image';
const EMPTY_LAYER = { mediaType: `${OCI}.layer.v1.tar+gzip`, digest: digestOf(''), size: 7 };

export async function startScriptedRegistry(): Promise<ScriptedRegistry> {
  const paths = new Map<string, Respond>();
  const asked: Asked[] = [];
  const answer = (request: IncomingMessage, response: ServerResponse): void => {
    const url = new URL(request.url ?? '', 'http://registry');
    const one = {
      method: request.method ?? '',
      path: url.pathname,
      query: url.searchParams,
      authorization: request.headers.authorization,
      userAgent: request.headers['user-agent'],
    };
    asked.push(one);
    if (registry.first(one, response)) return;
    const respond = paths.get(one.path);
    if (respond === undefined) response.writeHead(404).end();
    else respond(one, response);
  };
  const server = createServer(answer).listen(0, '127.0.0.1');
  await once(server, 'listening');

  const putBlob = (repository: string, body: string): string => {
    paths.set(`/v2/${repository}/blobs/${digestOf(body)}`, (_asked, response) => response.end(body));
    return digestOf(body);
  };
  const putManifest = (name: string, body: string): string => {
    const [repository = '', tag = 'latest'] = name.split(':');
    const digest = digestOf(body);
    const respond: Respond = (_asked, response) =>
      void response.writeHead(200, registry.tellsDigests ? { 'docker-content-digest': digest } : {}).end(body);
    for (const reference of [tag, digest]) paths.set(`/v2/${repository}/manifests/${reference}`, respond);
    return digest;
  };
  const putImage = (name: string, image: ImageSketch): string => {
    const { platform = 'linux/amd64', entrypoint, cmd = ['run'], configType = `${OCI}.config.v1+json` } = image;
    const [os, architecture] = platform.split('/');
    const config = JSON.stringify({ os, architecture, config: { Entrypoint: entrypoint ?? null, Cmd: cmd } });
    const digest = putBlob(name.split(':')[0] ?? '', config);
    const described = { mediaType: configType, digest, size: config.length };
    return putManifest(name, JSON.stringify({ schemaVersion: 2, config: described, layers: [EMPTY_LAYER] }));
  };
  const registry: ScriptedRegistry = {
    host: `127.0.0.1:${(server.address() as AddressInfo).port}`,
    asked,
    paths,
    first: () => false,
    tellsDigests: true,
    put: (name, image = {}) => putImage(name, image),
    putIndex: (name, images) => {
      const [repository] = name.split(':');
      const digests = images.map(({ image, platform = 'linux/amd64' }) =>
        putImage(`${repository}:part`, { platform, ...image }),
      );
      const manifests = digests.map((digest, i) => {
        const [os, architecture, variant] = (images[i]?.platform ?? 'linux/amd64').split('/');
        return { mediaType: `${OCI}.manifest.v1+json`, digest, size: 1, platform: { os, architecture, variant } };
      });
      return { digest: putManifest(name, JSON.stringify({ schemaVersion: 2, manifests })), entries: digests };
    },
    stop: async () => {
      server.closeAllConnections();
      await new Promise((resolve) => server.close(resolve));
    },
  };
  return registry;
}

export function digestOf(text: string): string {
  return `sha256:${createHash('sha256').update(text).digest('hex')}`;
}
