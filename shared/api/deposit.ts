// Stablecoin deposits (specification 2.18): a customer adds to its balance by sending tokens to an address of its own.
import { z } from 'zod';

export const DEPOSIT_CHAINS = ['ethereum', 'base', 'arbitrum', 'polygon', 'solana'] as const;
export type DepositChain = (typeof DEPOSIT_CHAINS)[number];

export const DEPOSIT_ASSETS = ['usdc', 'usdt'] as const;
export type DepositAsset = (typeof DEPOSIT_ASSETS)[number];

/** A hundred million dollars. The operator sets a lower limit. */
export const DEPOSIT_CENTS_MAX = 10 ** 10;

const chain = z.enum(DEPOSIT_CHAINS).describe('The chain on which the tokens are sent');
const asset = z
  .enum(DEPOSIT_ASSETS)
  .describe('The token: `usdc` or `usdt`, as its own issuer issues it on the chain. One token counts as one dollar');
const cents = z
  .int()
  .min(1)
  .max(DEPOSIT_CENTS_MAX)
  .describe('The requested amount, in cents. The amount that arrived is in `credited_cents`');

export const CreateDeposit = z.strictObject({ asset, chain, amount_usd_cents: cents });
export type CreateDeposit = z.infer<typeof CreateDeposit>;

export const DepositMethods = z
  .strictObject({
    min_usd_cents: cents.nullable().describe('The smallest amount of a deposit, in cents; null if it takes none'),
    max_usd_cents: cents.nullable().describe('The largest amount of a deposit, in cents; null if it takes none'),
    methods: z
      .array(
        z.strictObject({
          chain,
          asset,
          available: z
            .boolean()
            .describe('False while deposits on the chain are paused. POST /v1/deposits then answers 503'),
        }),
      )
      .describe('The chains and tokens that this service takes. Empty if it takes no stablecoins'),
  })
  .meta({ id: 'DepositMethods' });
export type DepositMethods = z.infer<typeof DepositMethods>;

export const Deposit = z
  .strictObject({
    deposit_id: z.string().describe('Names the deposit'),
    status: z
      .enum([
        'created',
        'detected',
        'confirming',
        'settled',
        'screening',
        'held_screening',
        'credited',
        'credited_underpaid',
        'credited_overpaid',
        'expired',
        'expired_received',
        'failed',
        'failed_screening',
      ])
      .describe(
        'created: the deposit waits for tokens. detected, confirming: tokens were seen and wait for finality. settled, screening: the senders are checked. held_screening: the check waits for an answer or for the operator. credited, credited_underpaid, credited_overpaid: the amount that arrived was added to the balance. expired: nothing arrived in time. expired_received: tokens arrived too late, and the operator decides. failed: the operator cancelled the deposit. failed_screening: the sender is sanctioned, and nothing is credited',
      ),
    chain,
    asset,
    amount_usd_cents: cents,
    created_at: z.iso.datetime().describe('When it was made'),
    pay_address: z.string().describe('Send the tokens here. The address belongs to this deposit alone'),
    pay_amount: z
      .string()
      .describe('The exact amount in tokens, as a decimal. Several transfers add up until `expires_at`'),
    expires_at: z.iso
      .datetime()
      .describe(
        'A transfer counts only if the time of its block is not later than this time. Send nothing after this time',
      ),
    tx_hash: z.string().optional().describe('The first transfer that counts; absent before one was seen'),
    credited_cents: z
      .int()
      .optional()
      .describe('The amount that was added to the balance, in cents. Absent until the deposit was credited'),
  })
  .meta({ id: 'Deposit' });
export type Deposit = z.infer<typeof Deposit>;
