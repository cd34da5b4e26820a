// Checks images at their registries: does it exist, may it be pulled, what does it run on linux/amd64. Answers are cached for a while.
import { createHash } from 'node:crypto';
import type { Clock } from '../../../shared/clock.ts';
import { REGISTRY_JSON_BYTES_MAX } from '../../../shared/limits.ts';
import type { PullLogin } from '../../../shared/protocol/link.ts';
import type { OutboundResponse } from '../../base/outbound/outbound.ts';
import { OutboundError } from '../../base/outbound/policy.ts';
import type { RegistryLogin } from './authorization.ts';
import { openCache } from './cache.ts';
import { openSemaphore } from '../../../shared/semaphore.ts';
import { type ImageCommand, MANIFEST_TYPES, pickPlatform, readConfig, readManifest } from './manifests.ts';
import type { ImageReference } from './reference.ts';
import { blocked, unavailable, unreachable } from './refusals.ts';
import {
  openSession,
  type Session,
  type RegistryTask,
  openRegistryClients,
  type PrivateRegistry,
  type RegistryClient,
} from './registry.ts';

/** Facts about a verified image. */
export interface ImageFacts extends ImageCommand {
  /** The digest of the linux/amd64 manifest. From the digest of an index, an engine chooses by itself, maybe an image that was not verified. */
  digest: string;
  /** Size of the compressed layers, which a host downloads. */
  layersBytes: number;
}

/** A stored login with its id. */
export interface ImageLogin extends RegistryLogin {
  credentialId: string;
}

/** What a caller wants to hear of before requests are sent. What these functions throw is thrown. */
export interface Asking {
  /** Called before the registry is asked at all. It is not called if the answer of a moment ago is still kept. */
  mayAsk?: (() => Promise<void>) | undefined;
  /** Called before contents are read that are not known yet, because registries count such reads. */
  onRead?: () => void;
}

export interface Images {
  /**
   * Proves within `CHECK_MS_MAX` that the image can be pulled and run on our hosts.
   * @throws ServiceError `image_reference_invalid`, `image_unavailable`, `registry_unreachable`
   */
  verify(reference: ImageReference, login: ImageLogin | undefined, asking?: Asking): Promise<ImageFacts>;
  /** What a host needs to pull the image: a token for this repository only, if the registry issues tokens. Errors as `verify`. */
  pullLogin(reference: ImageReference, login: RegistryLogin): Promise<PullLogin | null>;
  /** False if the registry names an address that is never asked, such as localhost. Other names are resolved only when they are asked. */
  mayAsk(registry: string): boolean;
  close(): Promise<void>;
}

/** Limit of the whole check, because a customer waits for it. */
const CHECK_MS_MAX = 15_000;
const CHECKS_PER_REGISTRY_MAX = 8;
/** How long an answer about a tag is kept. Tags move, and access is withdrawn. */
const ANSWER_MS = 60_000;
const REFUSAL_MS = 10_000;
const ENTRIES_MAX = 4_096;
const DIGEST = /^sha256:[0-9a-f]{64}$/;

/** `resolve` and `ca` replace DNS and the system's certificates in tests. */
export function openImages(
  privateRegistries: readonly PrivateRegistry[],
  deps: { clock: Clock; resolve?: (hostname: string) => Promise<string[]>; ca?: string },
): Images {
  const { clock } = deps;
  const clients = openRegistryClients(privateRegistries, deps);
  const answers = openCache<ImageFacts>(clock, {
    keepMs: ANSWER_MS,
    refusalKeepMs: REFUSAL_MS,
    entriesMax: ENTRIES_MAX,
  });
  // The contents of a digest never change, so they are kept. The permission to pull them may change, so it is checked again.
  const contents = openCache<ImageFacts>(clock, { keepMs: Infinity, refusalKeepMs: 0, entriesMax: ENTRIES_MAX });
  const semaphore = openSemaphore(clock, CHECKS_PER_REGISTRY_MAX);

  const visit = async <T>(
    reference: ImageReference,
    login: RegistryLogin | undefined,
    work: (session: Session, visit: RegistryTask) => Promise<T>,
  ): Promise<T> => {
    const untilMs = clock.monotonicMs() + CHECK_MS_MAX;
    const one: RegistryTask = { reference, login, untilMs };
    const begin = async () => ({
      result: await work(openSession(one, { clock, ...clients.to(reference.registry) }), one),
    });
    const done = await semaphore.run(reference.registry, CHECK_MS_MAX, begin);
    if (done === undefined) throw unreachable(reference, 'too many checks of its images are under way');
    return done.result;
  };

  return {
    verify: async (reference, login, { mayAsk, onRead = () => undefined } = {}) => {
      refuseBlocked(reference, clients.to(reference.registry));
      const key = keyOf(reference, login?.credentialId);
      if (!answers.has(key)) await mayAsk?.();
      return answers.get(key, () =>
        visit(reference, login, async (session) => {
          const digest = await resolve(reference, session);
          const content = `${reference.registry}/${reference.repository}@${digest}`;
          return contents.get(content, async () => {
            onRead();
            return readImage({ ...reference, digest }, session);
          });
        }),
      );
    },
    pullLogin: (reference, login) =>
      visit(reference, login, async (session) => {
        await resolve(reference, session);
        return session.authorization();
      }),
    mayAsk: (registry) => isAllowed(clients.to(registry)),
    close: () => clients.close(),
  };
}

/** Refuses a registry at a blocked address without sending a request. */
function refuseBlocked(reference: ImageReference, client: RegistryClient): void {
  if (!isAllowed(client)) throw blocked(reference, client.baseUrl);
}

function isAllowed({ outbound, baseUrl }: RegistryClient): boolean {
  try {
    outbound.assertAllowed(baseUrl);
    return true;
  } catch (error) {
    if (error instanceof OutboundError) return false;
    throw error;
  }
}

function keyOf({ registry, repository, tag, digest }: ImageReference, credentialId = ''): string {
  return [registry, repository, tag, digest, credentialId].join(' ');
}

/** The digest that the reference names now. The request also proves that the image may be pulled. */
async function resolve(reference: ImageReference, session: Session): Promise<string> {
  const path = `manifests/${reference.digest ?? reference.tag}`;
  const head = await session.ask('HEAD', path, { accept: MANIFEST_TYPES, bytesMax: 0 });
  const said = reference.digest ?? head.headers['docker-content-digest'];
  if (said !== undefined && DIGEST.test(said)) return said;
  const whole = await session.ask('GET', path, { accept: MANIFEST_TYPES, bytesMax: REGISTRY_JSON_BYTES_MAX });
  return digestOf(whole.body);
}

/** Reads the manifest of `digest` and its configuration. If `digest` is an index, its linux/amd64 manifest is read. */
async function readImage(reference: ImageReference & { digest: string }, session: Session): Promise<ImageFacts> {
  let { digest } = reference;
  let manifest = readManifest(await fetchManifest(reference, digest, session));
  if (manifest.kind === 'index') {
    const picked = pickPlatform(manifest.entries);
    if ('platforms' in picked) throw unavailable(reference, notForUs(picked.platforms));
    digest = picked.digest;
    manifest = readManifest(await fetchManifest(reference, digest, session));
  }
  if (manifest.kind === 'index') throw unavailable(reference, 'is an index of indexes, which engines do not pull');
  if (manifest.kind === 'unusable') throw unavailable(reference, manifest.why);
  const { configDigest, layersBytes } = manifest;
  const blob = await session.ask('GET', `blobs/${configDigest}`, { accept: '*/*', bytesMax: REGISTRY_JSON_BYTES_MAX });
  const config = readConfig(verified(reference, configDigest, blob));
  if (config.kind === 'unusable') throw unavailable(reference, config.why);
  return { ...config.command, digest, layersBytes };
}

async function fetchManifest(reference: ImageReference, digest: string, session: Session): Promise<Buffer> {
  const want = { accept: MANIFEST_TYPES, bytesMax: REGISTRY_JSON_BYTES_MAX };
  return verified(reference, digest, await session.ask('GET', `manifests/${digest}`, want));
}

/** Returns the body if its hash is the requested digest. @throws ServiceError otherwise */
function verified(reference: ImageReference, digest: string, { body, truncated }: OutboundResponse): Buffer {
  if (truncated) throw unavailable(reference, `has a manifest or configuration of more than ${body.length} bytes`);
  if (digestOf(body) !== digest) throw unreachable(reference, `what it sent as ${digest} is something else`);
  return body;
}

function digestOf(body: Buffer): string {
  return `sha256:${createHash('sha256').update(body).digest('hex')}`;
}

function notForUs(platforms: readonly string[]): string {
  const found = platforms.length === 0 ? 'none that it names' : platforms.slice(0, 16).join(', ');
  return `is not there for linux/amd64, which hosts need; there is: ${found}`;
}
