// Reads image references as Docker does: `alpine`, `ghcr.io/org/app:1.2`, `registry.lan:5000/app@sha256:...`. Pure.
import { ServiceError, messageOf } from '../../../shared/errors.ts';
import { IMAGE_REFERENCE_CHARS_MAX } from '../../../shared/limits.ts';
import { z } from 'zod';

export interface ImageReference {
  /** The name as people write it, in lower case: `docker.io`, `ghcr.io`, `registry.lan:5000`. */
  registry: string;
  /** The path in the registry. Official images of Docker Hub begin with `library/`. */
  repository: string;
  /** `latest` if the reference has neither tag nor digest; null if it has only a digest. */
  tag: string | null;
  /** `sha256:` and 64 hexadecimal digits. */
  digest: string | null;
}

const DOCKER_HUB = 'docker.io';
/** The host that serves Docker Hub's images. */
const DOCKER_HUB_HOST = 'registry-1.docker.io';
/** Names that people and tools use for Docker Hub. */
const DOCKER_HUB_NAMES = new Set([DOCKER_HUB, DOCKER_HUB_HOST, 'index.docker.io', 'registry.hub.docker.com']);
const REPOSITORY_CHARS_MAX = 255;

const LABEL = '[a-z0-9](?:[a-z0-9-]*[a-z0-9])?';
const REGISTRY = new RegExp(String.raw`^(?:${LABEL}(?:\.${LABEL})*|\[[0-9a-f:.]+\])(?::\d{1,5})?$`);
/** Letters and digits, separated by one dot, one or two underscores, or any number of dashes. */
const PATH_PART = /^[a-z0-9]+(?:(?:\.|_|__|-+)[a-z0-9]+)*$/;
const TAG = /^\w[\w.-]{0,127}$/;
const DIGEST = /^sha256:[0-9a-f]{64}$/;
const PORT_MAX = 65_535;

/** @throws ServiceError `image_reference_invalid` naming the rule that is broken */
export function parseReference(text: string): ImageReference {
  if (text.length > IMAGE_REFERENCE_CHARS_MAX) fail(`must have at most ${IMAGE_REFERENCE_CHARS_MAX} characters`);
  if (/^[a-z]+:\/\//i.test(text)) fail('must not begin with a scheme such as https://');
  if (/[^\x21-\x7e]/.test(text)) fail('must have no spaces and only ASCII characters');
  const [before = '', digest, ...more] = text.split('@');
  if (more.length > 0) fail('must have at most one digest, after the @');
  if (digest !== undefined && !DIGEST.test(digest)) {
    fail('must have sha256: and 64 lower-case hexadecimal digits after the @');
  }
  const { host, rest } = splitHost(before);
  const colon = rest.lastIndexOf(':');
  const path = colon < 0 ? rest : rest.slice(0, colon);
  const tag = colon < 0 ? undefined : rest.slice(colon + 1);
  if (tag !== undefined && !TAG.test(tag)) {
    fail('must have a tag of at most 128 letters, digits, "_", "." and "-" that begins with a letter, digit or "_"');
  }
  refusePath(path);
  const registry =
    host === undefined ? DOCKER_HUB : (readRegistry(host) ?? fail('must name the registry as host or host:port'));
  // In `Foo/app`, `Foo` counts as a host only because of its capital. The registry would be `foo`, which is no host.
  if (host !== undefined && splitHost(`${registry}/a`).host === undefined) {
    fail('must name the registry by a host with a dot or a port');
  }
  const repository = registry === DOCKER_HUB && !path.includes('/') ? `library/${path}` : path;
  if (repository.length > REPOSITORY_CHARS_MAX) fail(`must have a name of at most ${REPOSITORY_CHARS_MAX} characters`);
  return { registry, repository, tag: tag ?? (digest === undefined ? 'latest' : null), digest: digest ?? null };
}

/** The canonical name of a registry (`docker.io` for all names of Docker Hub); undefined if the text is not `host` or `host:port`. */
export function readRegistry(text: string): string | undefined {
  const name = text.toLowerCase();
  // The name that `docker login` writes for Docker Hub.
  if (name === 'https://index.docker.io/v1/') return DOCKER_HUB;
  if (DOCKER_HUB_NAMES.has(name)) return DOCKER_HUB;
  if (!REGISTRY.test(name)) return undefined;
  const port = /:(\d+)$/.exec(name.replace(/^\[.*\]/, ''))?.[1];
  return port === undefined || (Number(port) >= 1 && Number(port) <= PORT_MAX) ? name : undefined;
}

/** `host` or `host:port` that answers for the registry. */
export function hostOf(registry: string): string {
  return registry === DOCKER_HUB ? DOCKER_HUB_HOST : registry;
}

/** The short form that people write. `parseReference` reads it back. */
export function referenceText({ registry, repository, tag, digest }: ImageReference): string {
  const short = /^library\/([^/]+)$/.exec(repository)?.[1] ?? repository;
  // If the first part of the path looks like a host, the real host must stand before it.
  const isShort = registry === DOCKER_HUB && splitHost(short).host === undefined;
  const name = isShort ? short : `${registry}/${repository}`;
  return `${name}${tag === null ? '' : `:${tag}`}${digest === null ? '' : `@${digest}`}`;
}

/** `<image>@sha256:...` without the tag: what runs, and what the instance shows. */
export function pinnedText(reference: ImageReference, digest: string): string {
  return referenceText({ ...reference, tag: null, digest });
}

/** `rule` continues "image ...". */
export function invalidReference(rule: string): ServiceError {
  return new ServiceError('image_reference_invalid', { detail: `image ${rule}.`, errors: [{ field: 'image', rule }] });
}

/** The part before the first slash is a host if it cannot be a path: it has a dot, a port or capitals, or it is `localhost`. */
function splitHost(text: string): { host: string | undefined; rest: string } {
  const slash = text.indexOf('/');
  const first = text.slice(0, Math.max(0, slash));
  const isHost = slash >= 0 && (/[.:[]/.test(first) || first === 'localhost' || first !== first.toLowerCase());
  return isHost ? { host: first, rest: text.slice(slash + 1) } : { host: undefined, rest: text };
}

function refusePath(path: string): void {
  if (path === '') fail('must name a repository, such as alpine or ghcr.io/org/app');
  if (/^[0-9a-f]{64}$/.test(path)) fail('must be a name, not the id of a local image');
  if (path !== path.toLowerCase()) fail('must have a repository name in lower case');
  if (!path.split('/').every((part) => PATH_PART.test(part))) {
    fail('must have a repository name of lower-case letters and digits, separated by "/", ".", "_", "__" or "-"');
  }
}

function fail(rule: string): never {
  throw invalidReference(rule);
}

export const ImageName = z
  .string()
  .max(IMAGE_REFERENCE_CHARS_MAX)
  .superRefine((text, context) => {
    try {
      parseReference(text);
    } catch (error) {
      const message = error instanceof ServiceError ? error.details.detail : messageOf(error);
      context.addIssue({ code: 'custom', message });
    }
  });
