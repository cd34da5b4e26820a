// Commands of one request that show which GPUs are on offer, and the conditions on a host that a launch takes too.
import type { PlainCommand, PlainOption } from './plain.ts';

/** Minimums for the host of an instance. In a launch, they are members of `requirements`. */
export const MINIMUMS: readonly PlainOption[] = [
  {
    flags: '--min-vram <gb>',
    help: 'at least this much VRAM for each GPU',
    in: 'query',
    to: 'min_vram_gb',
    as: 'number',
  },
  {
    flags: '--min-cpus <count>',
    help: "at least this many processors for the instance, which gets its GPUs' share of those of the host",
    in: 'query',
    to: 'min_cpu_cores',
    as: 'number',
  },
  {
    flags: '--min-ram <gb>',
    help: "at least this much memory for the instance, which gets its GPUs' share of that of the host",
    in: 'query',
    to: 'min_ram_gb',
    as: 'number',
  },
  {
    flags: '--min-cuda <version>',
    help: 'a driver for this version of CUDA or a newer one, such as 12.8',
    in: 'query',
    to: 'min_cuda_version',
  },
  {
    flags: '--min-uptime <share>',
    help: 'a host that was connected for at least this share of the last 30 days, such as 0.99',
    in: 'query',
    to: 'min_uptime',
    as: 'number',
  },
];

export const OFFER_COMMANDS: readonly PlainCommand[] = [
  {
    words: ['gpu', 'list'],
    help: 'list the GPU types on offer',
    method: 'GET',
    path: '/gpu-types',
    isOpen: true,
    rows: 'data',
    pages: 'cursor',
    columns: ['gpu_type', 'architecture', 'vram_gb', 'cpu_cores', 'ram_gb', 'storage_gb', 'disk_configurable'],
    id: 'gpu_type',
  },
  {
    words: ['price', 'list'],
    help: 'list the offerings that meet all conditions, with the price of one GPU, the free GPUs, and what the whole host has',
    method: 'GET',
    path: '/pricing',
    options: [
      {
        flags: '--gpu-type <type>',
        help: 'only this type of svc gpu list, or several, separated by commas',
        in: 'query',
        to: 'gpu_type',
        as: 'repeated',
      },
      { flags: '--region <region>', help: 'only this region', in: 'query', to: 'region' },
      {
        flags: '--count <gpus>',
        help: 'at least this many free GPUs; the other conditions then compare a launch with this many',
        in: 'query',
        to: 'gpu_count',
        as: 'number',
      },
      {
        flags: '--max-price <usd>',
        help: 'the most that an hour of the whole launch may cost',
        in: 'query',
        to: 'max_price_per_hour',
        as: 'number',
      },
      { flags: '--disk <gb>', help: 'room for a disk of this size', in: 'query', to: 'disk_gb', as: 'number' },
      {
        flags: '--auto-terminate-hours <hours>',
        help: 'a host that stays until a launch with this limit has ended',
        in: 'query',
        to: 'auto_terminate_hours',
        as: 'number',
      },
      ...MINIMUMS,
      { flags: '--sort <order>', help: 'newest or price; newest without it', in: 'query', to: 'sort' },
    ],
    isOpen: true,
    rows: 'data',
    pages: 'cursor',
    // A choice depends on these members. The version of CUDA does not fit into a line, but --min-cuda compares it.
    columns: [
      'offering_id',
      'gpu_type',
      'region',
      'price_per_hour',
      'available',
      'cpu_cores',
      'ram_gb',
      'host_gpu_count',
      'uptime',
    ],
    id: 'offering_id',
  },
];
