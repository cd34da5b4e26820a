// Solana in the process (litesvm): its token program moves the tokens. A small JSON-RPC around it is what a node answers.
import {
  address,
  appendTransactionMessageInstructions,
  createTransactionMessage,
  generateKeyPairSigner,
  getBase58Decoder,
  getCompiledTransactionMessageDecoder,
  type KeyPairSigner,
  lamports,
  pipe,
  setTransactionMessageFeePayerSigner,
  setTransactionMessageLifetimeUsingBlockhash,
  signTransactionMessageWithSigners,
} from '@solana/kit';
import {
  AccountState,
  findAssociatedTokenPda,
  getCreateAssociatedTokenIdempotentInstruction,
  getMintEncoder,
  getTokenDecoder,
  getTokenEncoder,
  getTransferCheckedInstruction,
  TOKEN_PROGRAM_ADDRESS,
} from '@solana-program/token';
import { FailedTransactionMetadata, LiteSVM } from 'litesvm';
import { z } from 'zod';
import { serveJsonRpc } from './json-rpc.ts';

export interface SolanaChain {
  /** JSON-RPC of a node that obeys `fault`. */
  url: string;
  mints: { usdc: string; usdt: string; lookAlike: string; withNineDecimals: string };
  /** A sender that nothing is wrong with. */
  payer: string;
  /** Whoever asks `url` gets no answer, or one of a node that lacks the newest slots. */
  fault: 'down' | { lagSlots: number } | undefined;
  /** Transactions about which the node never answers again: it has `pruned` them, or has `no time` or only `an error` for them. */
  lost: Map<string, Loss>;
  /** Sends token units in a new slot of this time. Returns the signature. A transfer of more than there is fails on the chain. */
  pay(to: string, units: bigint, atMs: number, options?: { mint?: string }): Promise<string>;
  /** A new slot of this time. */
  advance(atMs: number): void;
  /** The address of a new key pair. */
  newAddress(): Promise<string>;
  close(): void;
}

export type Loss = 'pruned' | 'no time' | 'an error';

interface Slot {
  number: number;
  seconds: number;
}

interface Sent {
  signature: string;
  slot: Slot;
  err: object | null;
  accountKeys: readonly string[];
  pre: TokenBalance[];
  post: TokenBalance[];
}

export interface TokenBalance {
  accountIndex: number;
  mint: string;
  owner: string;
  programId: string;
  uiTokenAmount: { amount: string };
}

const GENESIS_HASH = '5eykt4UsFv8P8NJdTREpY1vzqKqZKvdpKuc147dw2N9d';
/** What the payer has of each token. */
const FUNDS = 1_000_000_000_000n;
const DECIMALS = 6;

export async function startSolanaChain(startMs: number): Promise<SolanaChain> {
  const svm = new LiteSVM();
  const payer = await generateKeyPairSigner();
  svm.airdrop(payer.address, lamports(10_000_000_000n));
  const slots: Slot[] = [{ number: 1, seconds: Math.floor(startMs / 1_000) }];
  const sent: Sent[] = [];
  const mint = (decimals = DECIMALS): Promise<string> => makeMint(svm, payer, decimals);
  const mints = { usdc: await mint(), usdt: await mint(), lookAlike: await mint(), withNineDecimals: await mint(9) };
  const node = await serveJsonRpc(
    () => made.fault === 'down',
    async (method, params) => answer({ svm, slots, sent, fault: made.fault, lost: made.lost }, method, params),
  );
  const advance = (atMs: number): Slot => {
    const slot = { number: (slots.at(-1)?.number ?? 0) + 1, seconds: Math.floor(atMs / 1_000) };
    slots.push(slot);
    svm.warpToSlot(BigInt(slot.number));
    svm.expireBlockhash();
    return slot;
  };
  const made: SolanaChain = {
    url: node.url,
    mints,
    payer: payer.address,
    fault: undefined,
    lost: new Map(),
    advance: (atMs) => void advance(atMs),
    newAddress: async () => (await generateKeyPairSigner()).address,
    pay: async (to, units, atMs, options = {}) => {
      const slot = advance(atMs);
      const transfer = await send(svm, payer, { to, units, mint: options.mint ?? mints.usdc });
      sent.push({ ...transfer, slot });
      return transfer.signature;
    },
    close: () => node.close(),
  };
  return made;
}

/** A mint, and an account of the payer with tokens of it. */
async function makeMint(svm: LiteSVM, payer: KeyPairSigner, decimals: number): Promise<string> {
  const { address: mint } = await generateKeyPairSigner();
  const account = { executable: false, lamports: lamports(1_000_000_000n), programAddress: TOKEN_PROGRAM_ADDRESS };
  const data = getMintEncoder().encode({
    mintAuthority: payer.address,
    supply: FUNDS,
    decimals,
    isInitialized: true,
    freezeAuthority: null,
  });
  svm.setAccount({ ...account, address: mint, data: new Uint8Array(data), space: BigInt(data.length) });
  const [funded] = await findAssociatedTokenPda({ owner: payer.address, mint, tokenProgram: TOKEN_PROGRAM_ADDRESS });
  const funds = getTokenEncoder().encode({
    mint,
    owner: payer.address,
    amount: FUNDS,
    delegate: null,
    state: AccountState.Initialized,
    isNative: null,
    delegatedAmount: 0n,
    closeAuthority: null,
  });
  svm.setAccount({ ...account, address: funded, data: new Uint8Array(funds), space: BigInt(funds.length) });
  return mint;
}

async function send(
  svm: LiteSVM,
  payer: KeyPairSigner,
  { to, units, mint: mintText }: { to: string; units: bigint; mint: string },
): Promise<Omit<Sent, 'slot'>> {
  const [mint, owner] = [address(mintText), address(to)];
  const program = { mint, tokenProgram: TOKEN_PROGRAM_ADDRESS };
  const [source] = await findAssociatedTokenPda({ ...program, owner: payer.address });
  const [destination] = await findAssociatedTokenPda({ ...program, owner });
  const decimals = mintDecimals(svm, mintText);
  const instructions = [
    getCreateAssociatedTokenIdempotentInstruction({ payer, ata: destination, owner, mint }),
    getTransferCheckedInstruction({ source, mint, destination, authority: payer, amount: units, decimals }),
  ];
  const blockhash = { blockhash: svm.latestBlockhash(), lastValidBlockHeight: 1_000_000n };
  const message = pipe(
    createTransactionMessage({ version: 0 }),
    (draft) => setTransactionMessageFeePayerSigner(payer, draft),
    (draft) => setTransactionMessageLifetimeUsingBlockhash(blockhash, draft),
    (draft) => appendTransactionMessageInstructions(instructions, draft),
  );
  const transaction = await signTransactionMessageWithSigners(message);
  const compiled = getCompiledTransactionMessageDecoder().decode(transaction.messageBytes);
  const accountKeys = compiled.staticAccounts.map(String);
  const balances = (): TokenBalance[] => accountKeys.flatMap((key, accountIndex) => balanceAt(svm, key, accountIndex));
  const pre = balances();
  const result = svm.sendTransaction(transaction);
  const signature = getBase58Decoder().decode(Object.values(transaction.signatures)[0] ?? new Uint8Array());
  const err = result instanceof FailedTransactionMetadata ? { InstructionError: [1, 'Custom'] } : null;
  return { signature, err, accountKeys, pre, post: balances() };
}

function mintDecimals(svm: LiteSVM, mint: string): number {
  const account = svm.getAccount(address(mint));
  // The byte behind the authority and the supply.
  return account.exists ? (account.data[44] ?? 0) : 0;
}

const TOKEN_ACCOUNT_BYTES = 165;

function balanceAt(svm: LiteSVM, key: string, accountIndex: number): TokenBalance[] {
  const account = svm.getAccount(address(key));
  if (!account.exists || account.programAddress !== TOKEN_PROGRAM_ADDRESS) return [];
  if (account.data.length !== TOKEN_ACCOUNT_BYTES) return [];
  const { mint, owner, amount } = getTokenDecoder().decode(account.data);
  const programId = TOKEN_PROGRAM_ADDRESS;
  return [{ accountIndex, mint, owner, programId, uiTokenAmount: { amount: String(amount) } }];
}

interface Node {
  svm: LiteSVM;
  slots: readonly Slot[];
  sent: readonly Sent[];
  fault: SolanaChain['fault'];
  lost: SolanaChain['lost'];
}

const Options = z.looseObject({
  minContextSlot: z.number().default(0),
  limit: z.number().default(1_000),
  before: z.string().optional(),
  dataSlice: z.object({ offset: z.number(), length: z.number() }).optional(),
});

function answer({ svm, slots, sent, fault, lost }: Node, method: string, [first, second]: unknown[]): unknown {
  const lag = typeof fault === 'object' ? fault.lagSlots : 0;
  const shown = slots.slice(0, Math.max(1, slots.length - lag));
  const tip = shown.at(-1)?.number ?? 0;
  const { minContextSlot, limit, before } = Options.catch({ minContextSlot: 0, limit: 1_000, before: undefined }).parse(
    second ?? first,
  );
  if (minContextSlot > tip) throw new Error('Minimum context slot has not been reached');
  const final = sent.filter(({ slot }) => slot.number <= tip);
  const accountOf = (key: unknown) => svm.getAccount(address(String(key)));
  switch (method) {
    case 'getGenesisHash':
      return GENESIS_HASH;
    case 'getSlot':
      return tip;
    case 'getBlockTime':
      return shown.find(({ number }) => number === first)?.seconds;
    case 'getAccountInfo': {
      const account = accountOf(first);
      if (!account.exists) return { value: null };
      const parsed = { type: 'mint', info: { decimals: mintDecimals(svm, String(first)) } };
      return { value: { owner: account.programAddress, data: { parsed } } };
    }
    case 'getMultipleAccounts': {
      const { offset = 0, length = 0 } = Options.parse(second).dataSlice ?? {};
      const value = (first as string[]).map((key) => {
        const account = accountOf(key);
        if (!account.exists || !final.some(({ accountKeys }) => accountKeys.includes(key))) return null;
        return { data: [Buffer.from(account.data.slice(offset, offset + length)).toString('base64'), 'base64'] };
      });
      return { context: { slot: tip }, value };
    }
    case 'getSignaturesForAddress': {
      const all = final.filter(({ accountKeys }) => accountKeys.includes(String(first))).toReversed();
      const rest = before === undefined ? all : all.slice(all.findIndex(({ signature }) => signature === before) + 1);
      return rest.slice(0, limit).map(({ signature, slot, err }) => ({ signature, slot: slot.number, err }));
    }
    case 'getTransaction': {
      const found = final.find(({ signature }) => signature === first);
      const loss = lost.get(String(first));
      if (loss === 'an error') throw new Error('Transaction history is not available');
      if (found === undefined || loss === 'pruned') return null;
      const { slot, err, accountKeys, pre, post } = found;
      const meta = { err, preTokenBalances: pre, postTokenBalances: post };
      return {
        slot: slot.number,
        blockTime: loss === 'no time' ? null : slot.seconds,
        meta,
        transaction: { message: { accountKeys } },
      };
    }
    default:
      throw new Error(`no method ${method}`);
  }
}
