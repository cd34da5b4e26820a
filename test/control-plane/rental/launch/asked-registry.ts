// A scripted registry, what asks it, and a clock that a test moves on.
import {
  type ImageFacts,
  type ImageLogin,
  type Images,
  openImages,
} from '../../../../control-plane/rental/launch/images.ts';
import { parseReference } from '../../../../control-plane/rental/launch/reference.ts';
import { systemClock } from '../../../../shared/clock.ts';
import { type ScriptedRegistry, startScriptedRegistry } from './scripted-registry.ts';

export const LOGIN: ImageLogin = { credentialId: 'rc_1', username: 'me', password: 'pass:word' };
export const BASIC = `Basic ${Buffer.from('me:pass:word').toString('base64')}`;

export interface AskedRegistry {
  registry: ScriptedRegistry;
  images: Images;
  /** Verifies a name in this registry. */
  verify(name: string, login?: ImageLogin): Promise<ImageFacts>;
  /** Timers stay real: only what has passed is more. */
  skip(ms: number): void;
  close(): Promise<void>;
}

export async function openAskedRegistry(): Promise<AskedRegistry> {
  const registry = await startScriptedRegistry();
  const real = systemClock();
  let aheadMs = 0;
  const clock = { ...real, monotonicMs: () => real.monotonicMs() + aheadMs };
  const images = openImages([{ host: registry.host, plainHttp: true }], { clock });
  return {
    registry,
    images,
    verify: (name, login) => images.verify(parseReference(`${registry.host}/${name}`), login),
    skip: (ms) => void (aheadMs += ms),
    close: async () => {
      await images.close();
      await registry.stop();
    },
  };
}
