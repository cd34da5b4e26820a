// Image registries and a model hub in memory. Each image exists and has a command, and no model exists, unless a test sets it otherwise.
import { createHash } from 'node:crypto';
import type { ImageFacts, ImageLogin, Images } from '../../control-plane/rental/launch/images.ts';
import type { ModelHub, Weights } from '../../control-plane/rental/launch/model-hub.ts';
import { referenceText, type ImageReference } from '../../control-plane/rental/launch/reference.ts';
import type { PullLogin } from '../../shared/protocol/link.ts';

export interface FakeImages extends Pick<Images, 'verify' | 'pullLogin' | 'mayAsk'> {
  /** The facts of each image by its reference, or why it cannot be pulled. */
  known: Map<string, Partial<ImageFacts> | Error>;
  /** Registries at private addresses. */
  privates: Set<string>;
  /** Questions so far. */
  asked: { reference: ImageReference; login: ImageLogin | undefined }[];
  /** While it is set, every answer waits for it. */
  held: Promise<void> | undefined;
  /** What hosts are sent. */
  token: PullLogin | null;
}

export function fakeImages(): FakeImages {
  const fake: FakeImages = {
    known: new Map(),
    privates: new Set(),
    asked: [],
    held: undefined,
    token: { kind: 'bearer', token: 'pull-token' },
    verify: async (reference, login) => {
      fake.asked.push({ reference, login });
      await fake.held;
      const text = referenceText(reference);
      const known = fake.known.get(text);
      if (known instanceof Error) throw known;
      const digest = reference.digest ?? `sha256:${createHash('sha256').update(text).digest('hex')}`;
      return { digest, hasEntrypoint: false, hasCmd: true, layersBytes: 0, ...known };
    },
    pullLogin: async () => fake.token,
    mayAsk: (registry) => !fake.privates.has(registry),
  };
  return fake;
}

export interface FakeModelHub extends Pick<ModelHub, 'sizeOf'> {
  /** Model -> size of its weights, or why it is not known. */
  known: Map<string, Weights>;
}

export function fakeModelHub(): FakeModelHub {
  const known = new Map<string, Weights>();
  return { known, sizeOf: async (model) => known.get(model) ?? { unknown: 'does not exist on the model hub' } };
}
