// Builds tiny container images and pushes them straight into a registry; no engine is needed for that.
import { createHash } from 'node:crypto';
import {
  chmodSync,
  copyFileSync,
  mkdirSync,
  mkdtempSync,
  readFileSync,
  rmSync,
  symlinkSync,
  writeFileSync,
} from 'node:fs';
import { tmpdir } from 'node:os';
import { dirname, join } from 'node:path';
import { gzipSync } from 'node:zlib';
import { runProgram } from './processes.ts';
import type { Registry } from './registry.ts';
import { requireProgram } from './setup.ts';

export interface TestImage {
  /** `host/name:tag` */
  ref: string;
  /** `host/name@sha256:...` */
  pinnedRef: string;
  digest: string;
}

/** What an image says about how it runs; field names as in the OCI image configuration. */
export interface ImageConfig {
  Entrypoint?: string[];
  Cmd?: string[];
  Env?: string[];
  User?: string;
  WorkingDir?: string;
  Volumes?: Record<string, object>;
}

export interface ImageOptions {
  name?: string;
  tag?: string;
  config?: ImageConfig;
  /** The architecture as images name it; this machine's by default. */
  architecture?: string;
  /** Path in the image -> content; scripts and programs become executable. */
  files?: Record<string, string | Buffer>;
  /** Path in the image -> what the symbolic link there says. */
  links?: Record<string, string>;
}

/** busybox with all its applets, a shell, `root` and `user` (uid 1000). Runs `sleep` if no command is given. */
export function busyboxImage(registry: Registry, options: ImageOptions = {}): Promise<TestImage> {
  const config = { Cmd: ['sleep', '1000000'], Env: ['PATH=/usr/sbin:/usr/bin:/sbin:/bin'], ...options.config };
  return pushImage(registry, { name: 'busybox', ...options, config }, async (root) => {
    for (const dir of ['bin', 'dev', 'etc', 'home/user', 'proc', 'root', 'sys', 'tmp', 'usr/bin', 'var']) {
      mkdirSync(join(root, dir), { recursive: true });
    }
    chmodSync(join(root, 'tmp'), 0o1777);
    writeFileSync(
      join(root, 'etc/passwd'),
      'root:x:0:0:root:/root:/bin/sh\nuser:x:1000:1000:user:/home/user:/bin/sh\n',
    );
    writeFileSync(join(root, 'etc/group'), 'root:x:0:\nuser:x:1000:\n');
    const busybox = requireProgram('busybox');
    copyFileSync(busybox, join(root, 'bin/busybox'));
    const applets = (await runProgram({ command: busybox, args: ['--list'] })).trim().split('\n');
    for (const applet of applets) if (applet !== 'busybox') symlinkSync('busybox', join(root, 'bin', applet));
  });
}

/** An image as if built from scratch: one static program `/sleep`, no shell, no users, no folders. */
export function scratchImage(registry: Registry, options: ImageOptions = {}): Promise<TestImage> {
  const config = { Entrypoint: ['/sleep', '1000000'], ...options.config };
  return pushImage(registry, { name: 'scratch', ...options, config }, (root) => {
    copyFileSync(requireProgram('busybox'), join(root, 'sleep'));
    return Promise.resolve();
  });
}

/** One name for images of several architectures, which are in the registry under the same name. */
export async function pushIndex(
  registry: Registry,
  name: string,
  images: { architecture: string; digest: string }[],
): Promise<TestImage> {
  const repository = `http://${registry.host}/v2/${name}`;
  const mediaType = 'application/vnd.docker.distribution.manifest.v2+json';
  const manifests = await Promise.all(
    images.map(async ({ architecture, digest }) => {
      const head = await fetch(`${repository}/manifests/${digest}`, { method: 'HEAD', headers: { accept: mediaType } });
      const size = Number(head.headers.get('content-length'));
      return { mediaType, digest, size, platform: { os: 'linux', architecture } };
    }),
  );
  const indexType = 'application/vnd.oci.image.index.v1+json';
  const index = Buffer.from(JSON.stringify({ schemaVersion: 2, mediaType: indexType, manifests }));
  await put(`${repository}/manifests/latest`, indexType, index);
  return testImage(registry, name, { tag: 'latest', digest: digestOf(index) });
}

/** Builds one layer from what `fill` puts into an empty folder. */
export async function pushImage(
  registry: Registry,
  options: ImageOptions & { name: string },
  fill: (root: string) => Promise<void>,
): Promise<TestImage> {
  const { name, tag = 'latest' } = options;
  const repository = `http://${registry.host}/v2/${name}`;
  const tar = await layerTar(options, fill);
  // Node in a layer would take a second of a processor to compress, and half of one for the engine to read.
  const layer = gzipSync(tar, { level: 0 });
  const config = Buffer.from(
    JSON.stringify({
      architecture: options.architecture ?? (process.arch === 'x64' ? 'amd64' : process.arch),
      os: 'linux',
      config: options.config,
      rootfs: { type: 'layers', diff_ids: [digestOf(tar)] },
      history: [{ created_by: 'test/kit/images.ts' }],
    }),
  );
  await Promise.all([layer, config].map((blob) => pushBlob(repository, blob)));
  const manifestType = 'application/vnd.docker.distribution.manifest.v2+json';
  const describe = (kind: string, blob: Buffer): Record<string, unknown> => {
    return { mediaType: `application/vnd.docker.${kind}`, size: blob.length, digest: digestOf(blob) };
  };
  const manifest = JSON.stringify({
    schemaVersion: 2,
    mediaType: manifestType,
    config: describe('container.image.v1+json', config),
    layers: [describe('image.rootfs.diff.tar.gzip', layer)],
  });
  await put(`${repository}/manifests/${tag}`, manifestType, Buffer.from(manifest));
  const digest = digestOf(Buffer.from(manifest));
  return testImage(registry, name, { tag, digest });
}

function testImage({ host }: Registry, name: string, { tag, digest }: { tag: string; digest: string }): TestImage {
  return { ref: `${host}/${name}:${tag}`, pinnedRef: `${host}/${name}@${digest}`, digest };
}

async function layerTar(
  { files = {}, links = {} }: ImageOptions,
  fill: (root: string) => Promise<void>,
): Promise<Buffer> {
  const dir = mkdtempSync(join(tmpdir(), 'image-'));
  try {
    const root = join(dir, 'root');
    mkdirSync(root, { mode: 0o755 });
    await fill(root);
    for (const [path, content] of Object.entries(files)) {
      const target = join(root, path);
      mkdirSync(dirname(target), { recursive: true });
      writeFileSync(target, content, { mode: isExecutable(content) ? 0o755 : 0o644 });
    }
    for (const [path, target] of Object.entries(links)) {
      mkdirSync(dirname(join(root, path)), { recursive: true });
      symlinkSync(target, join(root, path));
    }
    const tarPath = join(dir, 'layer.tar');
    // The same content gives the same digest: order, owners and times are fixed.
    const fixed = ['--sort=name', '--owner=0', '--group=0', '--numeric-owner', '--mtime=@0'];
    await runProgram({ command: 'tar', args: [...fixed, '-C', root, '-cf', tarPath, '.'] });
    return readFileSync(tarPath);
  } finally {
    rmSync(dir, { recursive: true });
  }
}

async function pushBlob(repository: string, blob: Buffer): Promise<void> {
  const started = await fetch(`${repository}/blobs/uploads/`, { method: 'POST' });
  const location = new URL(started.headers.get('location') ?? '', repository);
  location.searchParams.set('digest', digestOf(blob));
  await put(location.toString(), 'application/octet-stream', blob);
}

async function put(url: string, contentType: string, body: Buffer): Promise<void> {
  const response = await fetch(url, { method: 'PUT', headers: { 'content-type': contentType }, body });
  if (response.status !== 201) throw new Error(`PUT ${url}: ${response.status} ${await response.text()}`);
}

function digestOf(bytes: Buffer): string {
  return `sha256:${createHash('sha256').update(bytes).digest('hex')}`;
}

/** A script, or what the loader can start. */
function isExecutable(content: string | Buffer): boolean {
  const start = Buffer.from(content).subarray(0, 4).toString('latin1');
  return start.startsWith('#!') || start === '\u007fELF';
}
