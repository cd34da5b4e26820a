// Sends conversations with the same beginning to the same server, which has it in its cache: consistent hashing with bounded load.
import { hash } from 'node:crypto';
import type { ChatMessage } from '../../../shared/api/chat.ts';
import type { Upstream } from '../catalog/models.ts';

/** If a conversation is shorter, the cache saves less time than the wait for a busy server costs. */
const PREFIX_CHARS = 1_024;
/** How many times its share of the open requests a server gets at most. */
const LOAD_BOUND = 1.25;
const HASH_HEX_DIGITS = 12;

export interface Loaded {
  upstream: Upstream;
  openRequests: number;
}

/** A key for the beginning of a conversation, separate for each organisation; undefined if the conversation is too short to matter. */
export function affinityOf(orgId: string, modelId: string, messages: readonly ChatMessage[]): string | undefined {
  let prefix = '';
  for (const { role, content } of messages) {
    prefix += `${role}\n${content.slice(0, PREFIX_CHARS)}\n`;
    if (prefix.length > PREFIX_CHARS) return hash('sha256', `${orgId}\n${modelId}\n${prefix.slice(0, PREFIX_CHARS)}`);
  }
  return undefined;
}

/**
 * The key gives the servers an order (weighted rendezvous hashing). The first server that is below its load bound is chosen. If a server comes or
 * goes, the order of the others stays. Undefined if there is none.
 */
export function byAffinity(servers: readonly Loaded[], key: string): Upstream | undefined {
  const weights = sum(servers.map(({ upstream }) => upstream.weight));
  const open = sum(servers.map(({ openRequests }) => openRequests)) + 1;
  const mayHave = ({ weight }: Upstream): number => Math.ceil((LOAD_BOUND * open * weight) / weights);
  return servers
    .map((server) => ({ ...server, score: score(key, server.upstream) }))
    .toSorted((a, b) => b.score - a.score)
    .find(({ upstream, openRequests }) => openRequests < mayHave(upstream))?.upstream;
}

/** A server with twice the weight has the highest score for twice as many keys. */
function score(key: string, { base_url: url, model, weight }: Upstream): number {
  const digits = hash('sha256', `${key} ${url} ${model}`).slice(0, HASH_HEX_DIGITS);
  const uniform = (Number.parseInt(digits, 16) + 0.5) / 16 ** HASH_HEX_DIGITS;
  return -weight / Math.log(uniform);
}

function sum(numbers: readonly number[]): number {
  return numbers.reduce((total, each) => total + each, 0);
}
