// The filters of the launch form. They choose the offerings that are listed, and become requirements of the launch.
import type { PricingRow } from '../../../../shared/api/pricing.ts';
import type { Requirements } from '../../../../shared/api/requirements.ts';
import { shareOf } from '../../../../shared/api/share.ts';

/** What the person looks for. An empty text is no filter. */
export interface Filters {
  type: string;
  region: string;
  /** VRAM of each GPU, at least. */
  vramGb: string;
  /** Processors of the instance, at least. */
  cpuCores: string;
  /** Memory of the instance, at least. */
  ramGb: string;
  /** Version of CUDA, at least. */
  cuda: string;
  /** Share of the last 30 days in which the host was connected, at least. */
  uptime: string;
  /** Dollars an hour for one GPU, at most. */
  most: string;
}

export const NO_FILTERS: Filters = {
  type: '',
  region: '',
  vramGb: '',
  cpuCores: '',
  ramGb: '',
  cuda: '',
  uptime: '',
  most: '',
};

/** The fields of the form that choose the offerings. `disk` is in GB; it is empty if the person has typed none. */
interface Wish {
  filters: Filters;
  gpuCount: number;
  disk: string;
}

/** Compares the numbers in texts as numbers: 12.10 comes after 12.8. */
const inOrder = new Intl.Collator('en', { numeric: true }).compare;

/** The filter, or the size of the disk, that hides an offering, in words. Undefined: the offering is listed. */
export function hiddenBy(row: PricingRow, wish: Wish): string | undefined {
  const { disk } = wish;
  const filter = filteredBy(row, wish);
  if (filter !== undefined || disk === '') return filter;
  if (!row.disk_configurable) return 'no choice of disk';
  return row.storage_gb < Number(disk) ? `under ${disk} GB disk` : undefined;
}

/**
 * How many offerings the number of GPUs, each filter and the size of the disk hide by themselves, in words, the most first. An offering may count
 * for several of them.
 */
export function hiddenByEach(rows: readonly PricingRow[], { filters, gpuCount, disk }: Wish): [string, number][] {
  const one = (part: Partial<Filters>, gb = ''): Wish => ({ filters: { ...NO_FILTERS, ...part }, gpuCount, disk: gb });
  const areLarge = rows.filter((row) => hiddenBy(row, one({})) === undefined);
  const small = rows.flatMap((row) => hiddenBy(row, one({})) ?? []);
  const wishes = [...Object.entries(filters).map(([name, value]) => one({ [name]: value })), one({}, disk)];
  const reasons = [...small, ...wishes.flatMap((wish) => areLarge.flatMap((row) => hiddenBy(row, wish) ?? []))];
  return [...Map.groupBy(reasons, (reason) => reason)]
    .map(([reason, same]): [string, number] => [reason, same.length])
    .toSorted(([, a], [, b]) => b - a);
}

/** The filter that an offering does not meet, in words. */
export function filteredBy(
  row: PricingRow,
  { filters, gpuCount }: Pick<Wish, 'filters' | 'gpuCount'>,
): string | undefined {
  const { type, region, vramGb, most } = filters;
  if (row.host_gpu_count > 0 && row.host_gpu_count < gpuCount) return `with fewer than ${gpuCount} GPUs`;
  if (type !== '' && row.gpu_type !== type) return 'of another type';
  if (row.vram_gb < Number(vramGb)) return `under ${vramGb} GB of VRAM`;
  if (region !== '' && row.region !== region) return `not in ${region}`;
  const short = shortOf(row, filters, gpuCount) ?? unreliable(row, filters);
  if (short !== undefined) return short;
  return most !== '' && row.price_per_hour > Number(most) ? `above $${most} per GPU` : undefined;
}

/** What the instance would have too little of, in words. The API leaves out hosts that have not reported what is asked for. */
function shortOf(row: PricingRow, { cpuCores, ramGb, cuda }: Filters, gpuCount: number): string | undefined {
  const share = shareOf(row, gpuCount);
  const { cuda_version: has } = row;
  if (cpuCores !== '' && share.cpuCores === undefined) return 'with unknown CPUs';
  if (cpuCores !== '' && Number(share.cpuCores) < Number(cpuCores)) return `under ${cpuCores} CPUs`;
  if (ramGb !== '' && share.ramGb === undefined) return 'with unknown RAM';
  if (ramGb !== '' && Number(share.ramGb) < Number(ramGb)) return `under ${ramGb} GB of RAM`;
  if (cuda !== '' && has === undefined) return 'with unknown CUDA';
  return cuda !== '' && has !== undefined && inOrder(has, cuda) < 0 ? `with CUDA before ${cuda}` : undefined;
}

/** Why the uptime of the host is too short, in words. */
function unreliable({ uptime: has }: PricingRow, { uptime }: Filters): string | undefined {
  if (uptime === '') return undefined;
  if (has === undefined) return 'with unknown uptime';
  return has < Number(uptime) ? `under ${percent(Number(uptime))} uptime` : undefined;
}

/** An uptime like `99.8 %`. The API has it in tenths of a percent, rounded down, so none of its digits is lost. */
export function percent(uptime: number): string {
  return `${Number((100 * uptime).toFixed(1))} %`;
}

/**
 * What the launch requires of its host: the filters, without those of the type and the price. Undefined: nothing, as for a
 * reserved launch and for one that is pinned to a host.
 */
export function requirementsOf({
  tier,
  isPinned,
  filters: { region, vramGb, cpuCores, ramGb, cuda, uptime },
}: {
  tier: 'on_demand' | 'reserved';
  isPinned: boolean;
  filters: Filters;
}): Requirements | undefined {
  const required: Requirements = {
    ...(region === '' ? {} : { regions: [region] }),
    ...(vramGb === '' ? {} : { min_vram_gb: Number(vramGb) }),
    ...(cpuCores === '' ? {} : { min_cpu_cores: Number(cpuCores) }),
    ...(ramGb === '' ? {} : { min_ram_gb: Number(ramGb) }),
    ...(cuda === '' ? {} : { min_cuda_version: cuda }),
    ...(uptime === '' ? {} : { min_uptime: Number(uptime) }),
  };
  return tier === 'reserved' || isPinned || Object.keys(required).length === 0 ? undefined : required;
}

/** The filters of a launch with these requirements. The form has one region only. */
export function filtersOf(requirements: Requirements = {}): Filters {
  const { regions = [], ...minimums } = requirements;
  return {
    ...NO_FILTERS,
    region: regions.length === 1 ? String(regions[0]) : '',
    vramGb: textOf(minimums.min_vram_gb),
    cpuCores: textOf(minimums.min_cpu_cores),
    ramGb: textOf(minimums.min_ram_gb),
    cuda: textOf(minimums.min_cuda_version),
    uptime: textOf(minimums.min_uptime),
  };
}

const textOf = (value: string | number | undefined): string => (value === undefined ? '' : String(value));

/** The requirements as options of `svc instance create`. */
export function requirementOptions(requirements: Requirements | undefined): [string, string | number][] {
  const { regions = [], ...minimums } = requirements ?? {};
  const options: [string, string | number | undefined][] = [
    ...regions.map((region): [string, string] => ['--only-region', region]),
    ['--min-vram', minimums.min_vram_gb],
    ['--min-cpus', minimums.min_cpu_cores],
    ['--min-ram', minimums.min_ram_gb],
    ['--min-cuda', minimums.min_cuda_version],
    ['--min-uptime', minimums.min_uptime],
  ];
  return options.flatMap(([option, value]) => (value === undefined ? [] : [[option, value]]));
}

/** The values that a filter offers: those of the offerings, and its own, which may be of no offering any more. Numbers are in order. */
export function choicesOf(values: readonly (string | undefined)[], own: string): string[] {
  const found = new Set([...values, own].flatMap((value = '') => (value === '' ? [] : [value])));
  return [...found].toSorted(inOrder);
}
