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
const TRIES_MAX = 5;
/** Without counters, which change by themselves. */
const LIST = ['--stateless', 'list', 'table', 'inet', FENCE_TABLE];

export function openNftables(): Nftables {
  /** The rules, and how nft shows them: another listing is the work of somebody else. */
  let put: { rules: string; listing: string } | undefined;
  return {
    hold: async (rules) => {
      if (put?.rules === rules && (await nft(LIST).catch(() => 'none')) === put.listing) return false;
      put = { rules, listing: await putUp(rules) };
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

/** Takes the fence away, if it stands. */
export async function removeFence(): Promise<void> {
  if ((await nft(['list', 'tables'])).split('\n').includes(`table inet ${FENCE_TABLE}`)) {
    await nft(['delete', 'table', 'inet', FENCE_TABLE]);
  }
}

/** How nft shows the rules. Somebody may change them before they are shown, so they are put up until it shows the same twice. */
async function putUp(rules: string): Promise<string> {
  let shown: string | undefined;
  for (let tries = 0; tries < TRIES_MAX; tries += 1) {
    await nft(['-f', '-'], rules);
    const listing = await nft(LIST);
    if (listing === shown) return listing;
    shown = listing;
  }
  throw new Error(`another program changes the table inet ${FENCE_TABLE} as often as it is put up: find and stop it`);
}

async function nft(args: readonly string[], input?: string): Promise<string> {
  const result = await run(['nft', ...args], {
    timeoutMs: NFT_MS_MAX,
    ...(input === undefined ? {} : { input }),
  }).catch((error: unknown) => {
    throw new Error('the program nft is missing: install the package nftables', { cause: error });
  });
  if (result.code === 0) return result.stdout;
  throw new Error(`nft ${args.join(' ')} failed: ${result.stderr.trim().slice(0, ERROR_CHARS_MAX)}`);
}
