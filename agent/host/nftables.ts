// Installs the fence's table in the kernel with the program nft, and checks that nobody has changed it.
import { FENCE_COUNTER, FENCE_TABLE } from './fence-rules.ts';
import { run } from './run.ts';

export interface Nftables {
  /** Installs these rules unless they are installed unchanged. Resolves with true after a change. Rejects with advice for the supplier. */
  hold(rules: string): Promise<boolean>;
  /** How many packets the table has refused since it was last installed. */
  refused(): Promise<number>;
}

const NFT_MS_MAX = 10_000;
const ERROR_CHARS_MAX = 300;
const TRIES_MAX = 5;
/** Lists the table without counters, because they change by themselves. */
const LIST = ['--stateless', 'list', 'table', 'inet', FENCE_TABLE];

export function openNftables(): Nftables {
  /** The installed rules, and how nft lists them. If the listing differs, another program has changed the table. */
  let installed: { rules: string; listing: string } | undefined;
  return {
    hold: async (rules) => {
      if (installed?.rules === rules && (await nft(LIST).catch(() => 'none')) === installed.listing) return false;
      installed = { rules, listing: await install(rules) };
      return true;
    },
    refused: async () => {
      const text = await nft(['list', 'counter', 'inet', FENCE_TABLE, FENCE_COUNTER]);
      return Number(/packets (\d+)/.exec(text)?.[1] ?? 0);
    },
  };
}

/** For a supplier at the command line. Rejects if this agent cannot install a fence. */
export async function assertNftables(): Promise<void> {
  await nft(['list', 'tables']);
}

/** Removes the fence if it exists. */
export async function removeFence(): Promise<void> {
  if ((await nft(['list', 'tables'])).split('\n').includes(`table inet ${FENCE_TABLE}`)) {
    await nft(['delete', 'table', 'inet', FENCE_TABLE]);
  }
}

/** Installs the rules and returns nft's listing. Another program may change them in between, so this repeats until two listings agree. */
async function install(rules: string): Promise<string> {
  let shown: string | undefined;
  for (let tries = 0; tries < TRIES_MAX; tries += 1) {
    await nft(['-f', '-'], rules);
    const listing = await nft(LIST);
    if (listing === shown) return listing;
    shown = listing;
  }
  throw new Error(
    `another program changes the table inet ${FENCE_TABLE} as often as the agent installs it: find and stop that program`,
  );
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
