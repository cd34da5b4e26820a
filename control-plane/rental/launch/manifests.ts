// Reads manifests, indexes and image configurations of registries (Docker schema 2 and OCI). Pure.
import { z } from 'zod';
import { parseJson } from '../../../shared/json.ts';
import { jsonOf } from './authorization.ts';

const DOCKER = 'application/vnd.docker';
const OCI = 'application/vnd.oci.image';
/** The media types that we can read: images and lists of images, of Docker and of OCI. */
export const MANIFEST_TYPES = [
  `${DOCKER}.distribution.manifest.v2+json`,
  `${DOCKER}.distribution.manifest.list.v2+json`,
  `${OCI}.manifest.v1+json`,
  `${OCI}.index.v1+json`,
].join(', ');
const CONFIG_TYPES = new Set([`${DOCKER}.container.image.v1+json`, `${OCI}.config.v1+json`]);

const Platform = z.object({ os: z.string(), architecture: z.string(), variant: z.string().optional() });
const Descriptor = z.object({
  mediaType: z.string(),
  digest: z.string().regex(/^sha256:[0-9a-f]{64}$/),
  size: z.int().min(0),
  platform: Platform.optional(),
});
type Descriptor = z.infer<typeof Descriptor>;

const ImageManifest = z.object({ config: Descriptor, layers: z.array(Descriptor) });
const Index = z.object({ manifests: z.array(Descriptor) });

/** `digest` is that of the image's configuration; `layersBytes` is the compressed size. */
export type Manifest =
  | { kind: 'image'; configDigest: string; layersBytes: number }
  | { kind: 'index'; entries: readonly Descriptor[] }
  /** `why` continues "the image ...". */
  | { kind: 'unusable'; why: string };

export function readManifest(body: Buffer): Manifest {
  const json = jsonOf(body);
  if (json !== undefined && namesAddresses(body.toString())) {
    return {
      kind: 'unusable',
      why: 'names web addresses ("urls") from which hosts would fetch parts of it; push it again so that its registry has all its layers',
    };
  }
  if (z.object({ schemaVersion: z.literal(1) }).safeParse(json).success) {
    return { kind: 'unusable', why: 'is stored in the old manifest schema 1; push it again with a current tool' };
  }
  const image = ImageManifest.safeParse(json);
  if (image.success) {
    const { config, layers } = image.data;
    if (!CONFIG_TYPES.has(config.mediaType)) {
      return {
        kind: 'unusable',
        why: `is no container image but an artifact of type ${config.mediaType.slice(0, 128)}`,
      };
    }
    return { kind: 'image', configDigest: config.digest, layersBytes: layers.reduce((sum, { size }) => sum + size, 0) };
  }
  const index = Index.safeParse(json);
  if (index.success) return { kind: 'index', entries: index.data.manifests };
  return { kind: 'unusable', why: 'has a manifest that is neither of Docker schema 2 nor of OCI' };
}

/** What follows the name of a list that has an element. */
const LIST = /\s*:\s*\[\s*[^\]\s]/y;
/** The name `urls` if each of its characters is written as an escape, with its quotes. */
const NAME_CHARS_MAX = 4 * 6 + 2;

/**
 * Whether any part of a document of JSON has a list `urls`. Engines that keep images in containerd fetch such a part from there, so an image could
 * have a host ask any address of the host's own network. The text is searched, because engines take `URLs` for the same name, and the first of two
 * equal names too.
 */
function namesAddresses(text: string): boolean {
  for (let at = text.indexOf('"'); at !== -1;) {
    const end = endOfString(text, at);
    LIST.lastIndex = end;
    if (end - at <= NAME_CHARS_MAX && LIST.test(text) && /^urls$/iu.test(String(parseJson(text.slice(at, end), 1))))
      return true;
    at = text.indexOf('"', end);
  }
  return false;
}

/** The index behind a string that begins at `at`. */
function endOfString(text: string, at: number): number {
  let index = at + 1;
  while (index < text.length && text[index] !== '"') index += text[index] === '\\' ? 2 : 1;
  return index + 1;
}

/** The digest of the linux/amd64 image, or the platforms that exist instead. */
export function pickPlatform(entries: readonly Descriptor[]): { digest: string } | { platforms: string[] } {
  const fitting = entries.filter(({ platform }) => platform !== undefined && isOurs(platform));
  // The variants v2 and v3 need newer processors, which not every host has.
  const plain = fitting.find(({ platform }) => platform?.variant === undefined || platform.variant === 'v1');
  const chosen = plain ?? fitting[0];
  if (chosen !== undefined) return { digest: chosen.digest };
  const names = entries.flatMap(({ platform }) => (platform === undefined ? [] : [platformText(platform)]));
  // An index lists attestations as images for an unknown platform.
  return { platforms: [...new Set(names)].filter((name) => name !== 'unknown/unknown') };
}

const Strings = z
  .union([z.string().transform((text) => [text]), z.array(z.string())])
  .nullish()
  .transform((list) => list ?? []);

const ImageConfig = z.object({
  os: z.string(),
  architecture: z.string(),
  config: z.object({ Entrypoint: Strings, Cmd: Strings }).nullish(),
});

/** Whether an image names a command. The command itself is not kept, because it may be long, and the cache keeps entries for long. */
export interface ImageCommand {
  hasEntrypoint: boolean;
  hasCmd: boolean;
}

export type ReadConfig = { kind: 'config'; command: ImageCommand } | { kind: 'unusable'; why: string };

export function readConfig(body: Buffer): ReadConfig {
  const parsed = ImageConfig.safeParse(jsonOf(body));
  if (!parsed.success) return { kind: 'unusable', why: 'has a configuration that is not valid' };
  const { config } = parsed.data;
  if (!isOurs(parsed.data)) {
    return { kind: 'unusable', why: `is for ${platformText(parsed.data)}; hosts need linux/amd64` };
  }
  const says = (words: string[] | undefined): boolean => words !== undefined && words.length > 0;
  return { kind: 'config', command: { hasEntrypoint: says(config?.Entrypoint), hasCmd: says(config?.Cmd) } };
}

function isOurs({ os, architecture }: { os: string; architecture: string }): boolean {
  return os === 'linux' && architecture === 'amd64';
}

function platformText({ os, architecture, variant }: z.infer<typeof Platform>): string {
  return [os, architecture, ...(variant === undefined ? [] : [variant])].join('/').slice(0, 64);
}
