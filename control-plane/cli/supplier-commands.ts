// Commands of one request for suppliers: machines, earnings and payouts.
import type { PlainCommand, PlainOption } from './plain.ts';

const MACHINE = [
  'machine_id',
  'status',
  'verification_status',
  'gpu_type',
  'gpu_count',
  'region',
  'price_per_hour',
  'last_heartbeat_at',
] as const;

const DESTINATION = [
  'destination.chain',
  'destination.address',
  'pending.chain',
  'pending.address',
  'pending.in_force_at',
] as const;

const REGION: PlainOption = {
  flags: '--region <region>',
  help: 'where it stands, such as eu-west',
  in: 'body',
  to: 'region',
};
const PRICE: PlainOption = {
  flags: '--price <usd>',
  help: 'the price of one GPU for an hour',
  in: 'body',
  to: 'price_per_hour',
  as: 'number',
};

export const SUPPLIER_COMMANDS: readonly PlainCommand[] = [
  {
    words: ['machine', 'join'],
    help: 'become a supplier',
    method: 'POST',
    path: '/community/supplier',
    columns: ['supplier_id', 'status', 'created_at'],
    id: 'supplier_id',
  },
  {
    words: ['machine', 'list'],
    help: 'list your machines',
    method: 'GET',
    path: '/community/machines',
    rows: 'data',
    columns: MACHINE,
    id: 'machine_id',
  },
  {
    words: ['machine', 'get'],
    help: 'show a machine, and why it is not on offer',
    method: 'GET',
    path: '/community/machines/{id}',
    columns: [...MACHINE, 'status_reason', 'verification_detail'],
    id: 'machine_id',
  },
  {
    words: ['machine', 'enroll'],
    help: 'register a machine; its enrolment token is shown once',
    method: 'POST',
    path: '/community/machines',
    options: [
      { ...REGION, required: true },
      { ...PRICE, required: true },
    ],
    columns: ['machine.machine_id', 'enrollment_token'],
    id: 'enrollment_token',
  },
  {
    words: ['machine', 'token'],
    help: 'a new enrolment token for a machine; the one before ends',
    method: 'POST',
    path: '/community/machines/{id}/token',
    columns: ['machine.machine_id', 'enrollment_token'],
    id: 'enrollment_token',
  },
  {
    words: ['machine', 'change'],
    help: 'change the price or region of a machine, for rentals from now on',
    method: 'PATCH',
    path: '/community/machines/{id}',
    options: [REGION, PRICE],
    columns: MACHINE,
    id: 'machine_id',
  },
  {
    words: ['machine', 'relist'],
    help: 'put a delisted machine on offer again',
    method: 'POST',
    path: '/community/machines/{id}/list',
    columns: MACHINE,
    id: 'machine_id',
  },
  {
    words: ['machine', 'delist'],
    help: 'take a machine off the market; what runs there goes on',
    method: 'DELETE',
    path: '/community/machines/{id}',
    columns: ['machine_id', 'status'],
    id: 'machine_id',
  },
  {
    words: ['machine', 'earnings'],
    help: 'what your machines earned, newest first',
    method: 'GET',
    path: '/community/earnings',
    rows: 'entries',
    columns: ['accrued_at', 'machine_id', 'instance_id', 'amount', 'paid', 'reason'],
    id: 'ledger_id',
  },
  {
    words: ['machine', 'payouts'],
    help: 'what you are and were paid, newest first',
    method: 'GET',
    path: '/community/payouts',
    rows: 'data',
    columns: ['payout_id', 'status', 'amount_cents', 'paid_at', 'reference', 'reason'],
    id: 'payout_id',
  },
  {
    words: ['machine', 'statement'],
    help: 'what you earned and were paid in a month',
    method: 'GET',
    path: '/community/statement',
    options: [
      { flags: '--month <month>', help: 'such as 2026-11; the present one without it', in: 'query', to: 'month' },
    ],
    columns: ['month', 'opening_balance', 'closing_balance'],
    id: 'month',
  },
  {
    words: ['machine', 'destination'],
    help: 'show where you are paid, and a change that is not in force yet',
    method: 'GET',
    path: '/community/payout-destination',
    columns: DESTINATION,
    id: 'destination',
  },
  {
    words: ['machine', 'pay-to'],
    help: 'name the address to which you are paid; a change comes into force after a delay',
    method: 'PUT',
    path: '/community/payout-destination',
    options: [
      {
        flags: '--chain <chain>',
        help: 'ethereum, base, arbitrum, polygon or solana',
        in: 'body',
        to: 'chain',
        required: true,
      },
      {
        flags: '--address <address>',
        help: 'an address of yours on that chain',
        in: 'body',
        to: 'address',
        required: true,
      },
    ],
    columns: DESTINATION,
    id: 'destination',
  },
];
