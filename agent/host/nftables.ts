// Puts the fence's table into the kernel with the program nft, and looks whether it is still there as it was put.
import { FENCE_COUNTER, FENCE_TABLE } from './fence-rules.ts';
import { run } from './run.ts';

export interface Nftables {
  /** Puts these rules up, where they are not up as they were put before. True where something was changed. Rejects with what to do. */
  hold(rules: string): Promise<boolean>;
  /** How many packets the table has refused since it was last put up. */
  refused(): Promise<number>;
}

const NFT_MS_MAX = 10_000;
const ERROR_CHARS_MAX = 300;

export function openNftables(): Nftables {
  /** The rules, and how nft shows them: another listing is the work of somebody else. */
  let put: { rules: string; listing: string } | undefined;
  return {
    hold: async (rules) => {
      if (put?.rules === rules && (await list()) === put.listing) return false;
      await nft(['-f', '-'], rules);
      put = { rules, listing: await list() };
      return true;
    },
    refused: async () => {
      const text = await nft(['list', 'counter', 'inet', FENCE_TABLE, FENCE_COUNTER]);
      return Number(/packets (\d+)/.exec(text)?.[1] ?? 0);
    },
  };
}

/** For a supplier who is there to mend it. Rejects where this agent cannot put up a fence. */
export async function assertNftables(): Promise<void> {
  await nft(['list', 'tables']);
}

/** Empty where there is no such table. Without counters, which change by themselves. */
async function list(): Promise<string> {
  return nft(['--stateless', 'list', 'table', 'inet', FENCE_TABLE]).catch(() => '');
}

async function nft(args: string[], input?: string): Promise<string> {
  const result = await run(['nft', ...args], {
    timeoutMs: NFT_MS_MAX,
    ...(input === undefined ? {} : { input }),
  }).catch((error: unknown) => {
    throw new Error('the program nft is missing: install the package nftables', { cause: error });
  });
  if (result.code === 0) return result.stdout;
  throw new Error(`nft ${args.join(' ')} failed: ${result.stderr.trim().slice(0, ERROR_CHARS_MAX)}`);
}
