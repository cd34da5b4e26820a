// Asks the model hub for the size of a model's weights. Every failure is an answer with a reason, so it never blocks a launch.
import { z } from 'zod';
import { JSON_VALUES_MAX } from '../../../shared/limits.ts';
import type { Clock } from '../../../shared/clock.ts';
import type { Log } from '../../../shared/log.ts';
import { openOutbound, type OutboundResponse } from '../../base/outbound/outbound.ts';
import { OutboundError } from '../../base/outbound/policy.ts';
import { jsonOf } from './authorization.ts';
import { openCache } from './cache.ts';

/** `unknown` continues "the model ...". */
export type Weights = { bytes: number } | { unknown: string };

export interface ModelHub {
  /** The size of the weights that a server loads. Takes at most `ASK_MS_MAX`; never throws. */
  sizeOf(model: string): Promise<Weights>;
  close(): Promise<void>;
}

/** Short, because a launch waits for it. */
const ASK_MS_MAX = 3_000;
/** The hub redirects to the new name of a renamed repository. */
const REDIRECTS_MAX = 2;
const BODY_BYTES_MAX = 4 * 1024 ** 2;
/** The weights of a published model hardly ever change. */
const KEEP_MS = 10 * 60_000;
const ENTRIES_MAX = 4_096;
const REPOSITORY = /^[A-Za-z0-9][\w.-]{0,95}(\/[A-Za-z0-9][\w.-]{0,95})?$/;

const ModelInfo = z.object({
  gated: z.union([z.boolean(), z.string()]).nullish(),
  siblings: z.array(z.object({ rfilename: z.string(), size: z.number().nullish() })),
});

/**
 * `url` is the base of the hub's API. The operator chooses it, so it may be private and use plain HTTP.
 * `resolve` and `ca` replace DNS and the system's certificates in tests.
 */
export function openModelHub(
  url: string,
  deps: { clock: Clock; log: Log; resolve?: (hostname: string) => Promise<string[]>; ca?: string },
): ModelHub {
  const { clock, log } = deps;
  const { host, protocol } = new URL(url);
  const namedHosts = [{ host, plainHttp: protocol === 'http:' }];
  const outbound = openOutbound({ ports: 'any', privateNetworks: [], namedHosts }, deps);
  const answers = openCache<Weights>(clock, { keepMs: KEEP_MS, refusalKeepMs: 0, entriesMax: ENTRIES_MAX });

  const get = async (first: string): Promise<OutboundResponse> => {
    const untilMs = clock.monotonicMs() + ASK_MS_MAX;
    let at = first;
    for (let hop = 0; ; hop += 1) {
      const leftMs = Math.max(1, untilMs - clock.monotonicMs());
      const answer = await outbound.request({
        method: 'GET',
        url: at,
        headers: { accept: 'application/json', 'user-agent': 'svc-control-plane' },
        statusMs: leftMs,
        totalMs: leftMs,
        bodyBytesMax: BODY_BYTES_MAX,
      });
      const next = isRedirect(answer) ? URL.parse(answer.headers['location'] ?? '', at) : null;
      // A redirect must stay at the hub that the operator has named.
      if (next === null || next.host !== host || hop === REDIRECTS_MAX) return answer;
      at = next.href;
    }
  };

  return {
    sizeOf: async (model) => {
      if (!REPOSITORY.test(model)) return { unknown: 'is no name of a repository on the model hub' };
      try {
        return await answers.get(model, async () => {
          const answer = await get(`${url}/models/${model}?blobs=true`);
          // Temporary errors are not cached, so the next launch asks again.
          if (answer.status >= 500 || answer.status === 429) throw new HubAway(`status ${answer.status}`);
          return readWeights(answer);
        });
      } catch (error) {
        if (!(error instanceof OutboundError) && !(error instanceof HubAway)) throw error;
        log.warn(
          { model, err: error },
          'the model hub did not answer; the launch goes on without the size of its model',
        );
        return { unknown: 'could not be looked up, because the model hub did not answer in time' };
      }
    },
    close: () => outbound.close(),
  };
}

class HubAway extends Error {}

function isRedirect({ status }: OutboundResponse): boolean {
  return [301, 302, 303, 307, 308].includes(status);
}

function readWeights({ status, body, truncated }: OutboundResponse): Weights {
  if (status === 401 || status === 403 || status === 404) {
    return { unknown: 'does not exist on the model hub, or is private: HF_TOKEN must be able to read it' };
  }
  if (status !== 200 || truncated) return { unknown: 'could not be looked up on the model hub' };
  const info = ModelInfo.safeParse(jsonOf(body, JSON_VALUES_MAX));
  if (!info.success) return { unknown: 'could not be looked up on the model hub' };
  const { gated, siblings } = info.data;
  if (gated !== undefined && gated !== null && gated !== false) {
    return { unknown: 'is gated: HF_TOKEN must be of an account that was granted access' };
  }
  const files = weightFiles(siblings);
  if (files.length === 0) return { unknown: 'has no weights as .safetensors or .bin files' };
  const bytes = files.reduce((sum, { size }) => sum + (size ?? Number.NaN), 0);
  return Number.isFinite(bytes) && bytes >= 0
    ? { bytes }
    : { unknown: 'has weights of a size that the model hub does not tell' };
}

/** Repositories often have the same weights in several formats. Only the format that servers load counts. */
function weightFiles<F extends { rfilename: string }>(files: readonly F[]): F[] {
  const preferred = [/^model[^/]*\.safetensors$/, /^[^/]+\.safetensors$/, /^pytorch_model[^/]*\.bin$/, /^[^/]+\.bin$/];
  for (const pattern of preferred) {
    const found = files.filter(({ rfilename }) => pattern.test(rfilename));
    if (found.length > 0) return found;
  }
  return [];
}
