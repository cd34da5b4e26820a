// JSON-RPC to a node of the operator's choice.
import { z } from 'zod';
import type { Clock } from '../../../shared/clock.ts';
import { fail, messageOf } from '../../../shared/errors.ts';
import { jsonOf, openOutbound } from '../../base/outbound/outbound.ts';
import { OutboundError } from '../../base/outbound/policy.ts';

/** The node has answered, but not with a result. The message never has the URL, whose path may be a key. */
export class RpcError extends Error {
  readonly code: number;

  constructor(code: number, message: string) {
    super(message);
    this.name = 'RpcError';
    this.code = code;
  }
}

export interface Rpc {
  /** @throws OutboundError if the node does not answer, RpcError if it answers with an error or in another form */
  call<T>(method: string, params: readonly unknown[], result: z.ZodType<T>): Promise<T>;
  close(): Promise<void>;
}

const STATUS_MS_MAX = 15_000;
const TOTAL_MS_MAX = 30_000;
const BODY_BYTES_MAX = 16 * 1024 ** 2;
/** A log has some twenty-five names and values, so this limit allows more logs than BODY_BYTES_MAX does. */
const VALUES_MAX = 1_000_000;
/** The code of an answer that is too large for us. JSON-RPC has no code for it, so this is the code of an internal error. */
const TOO_LARGE = -32_603;
/** The code if the node gave no answer that can be used: no JSON-RPC, or a result of an unknown form. */
export const NO_ANSWER = 0;
/** The HTTP status, and also the code, with which nodes refuse calls that are too many for them. */
const TOO_MANY = 429;

const Answer = z.union([
  z.object({ error: z.object({ code: z.number(), message: z.string() }) }),
  z.object({ result: z.unknown() }),
]);

/** The operator chooses `url`, so it may be private and use plain HTTP. */
export function openRpc(url: string, { clock }: { clock: Clock }): Rpc {
  const { host, protocol } = new URL(url);
  const namedHosts = [{ host, plainHttp: protocol === 'http:' }];
  const outbound = openOutbound({ ports: 'any', privateNetworks: [], namedHosts }, { clock });
  return {
    call: async (method, params, result) => {
      const answer = await outbound.request({
        method: 'POST',
        url,
        headers: { 'content-type': 'application/json' },
        body: JSON.stringify({ jsonrpc: '2.0', id: 1, method, params }),
        statusMs: STATUS_MS_MAX,
        totalMs: TOTAL_MS_MAX,
        bodyBytesMax: BODY_BYTES_MAX,
      });
      if (answer.truncated) throw new RpcError(TOO_LARGE, `${method}: the answer of the node is too large`);
      if (answer.status === TOO_MANY) throw new RpcError(TOO_MANY, `${method}: too many requests`);
      const parsed = Answer.safeParse(jsonOf(answer.body.toString(), VALUES_MAX));
      if (!parsed.success)
        throw new RpcError(NO_ANSWER, `${method}: the node answered ${answer.status} without JSON-RPC`);
      if ('error' in parsed.data)
        throw new RpcError(parsed.data.error.code, `${method}: ${parsed.data.error.message.slice(0, 200)}`);
      const value = result.safeParse(parsed.data.result);
      if (!value.success) throw new RpcError(NO_ANSWER, `${method}: the result of the node has an unknown form`);
      return value.data;
    },
    close: () => outbound.close(),
  };
}

/** Whether the node gave no answer that can be used. Otherwise the error is a bug of ours. */
export function isNodeError(error: unknown): error is Error {
  return error instanceof OutboundError || error instanceof RpcError;
}

/** Whether the node refuses calls because there were too many. That says nothing about what was asked. */
export function isTooMany(error: unknown): boolean {
  return error instanceof RpcError && error.code === TOO_MANY;
}

/** @throws ServiceError `deposits_unavailable` if the node gives no answer */
export async function answered<T>(asked: Promise<T>): Promise<T> {
  try {
    return await asked;
  } catch (error) {
    if (!isNodeError(error)) throw error;
    return fail('deposits_unavailable', `The node gave no answer: ${messageOf(error)}. Try again later.`);
  }
}
