// Chooses the contract of a reserved launch, or refuses the launch with one of the four errors of specification 7.2.
import { isoTime } from '../../../shared/clock.ts';
import { fail } from '../../../shared/errors.ts';
import type { Tx } from '../../base/db/db.ts';
import {
  hasCapacity,
  hasVram,
  honoursDisk,
  isFor,
  type SlotRequest,
  type Slots,
  slotsOf,
  type SlotWant,
  wantsOf,
} from '../../fleet/supply/slots.ts';
import * as store from './store.ts';
import { standing } from './term.ts';

/** A polling interval, because nobody can know when the next instance ends and frees a slot. */
const RETRY_AFTER_SECONDS = 30;

/** The region must be one of the contract's. A pinned offering must be one on which the contract has slots. */
export type ReservedLaunch = SlotRequest & { orgId: string };

export interface ChosenContract {
  id: string;
  /** The region of the contract's machine that has capacity for the launch. */
  region: string;
}

/**
 * Chooses among the active contracts that cover the launch and have enough slots on one machine. It takes the one that ends last, so that the
 * instance is covered for as long as possible.
 * @throws ServiceError `reservation/*`, `gpu_vram_too_small`, `disk_unavailable`
 */
export async function choose(tx: Tx, launch: ReservedLaunch, nowMs: number): Promise<ChosenContract> {
  const held = await contractsOf(tx, launch.orgId, nowMs);
  if (held.length === 0) {
    fail(
      'reservation/no_contract',
      'This organisation holds no reservation contract. Use tier on_demand, or ask the operator for a contract.',
    );
  }
  const covering = coveringContracts(held, launch);
  const fitting: Slots[] = [];
  let awaited = 0;
  for (const { id } of covering) {
    const slots = (await slotsOf(tx, id)).filter((slot) => isFor(slot, launch));
    const room = slots.find((slot) => hasCapacity(slot, launch));
    if (room !== undefined) return { id, region: room.region };
    fitting.push(...slots);
    awaited += awaitedGpus(await wantsOf(tx, id), launch);
  }
  if (launch.offeringId !== null && fitting.length === 0) {
    fail('reservation/gpu_type_mismatch', {
      detail: `No active contract has slots of ${launch.gpuType} on the offering ${launch.offeringId}. Leave offering_id out.`,
      errors: [{ field: 'offering_id', rule: 'must be an offering that the contract has slots on' }],
    });
  }
  const large = fitting.filter((slot) => hasVram(slot, launch));
  if (large.length === 0 && fitting.length > 0) {
    fail('gpu_vram_too_small', {
      detail: `No slot of ${launch.gpuType} has the ${launch.minVramGb} GB of VRAM that the launch needs on each GPU. Use tier on_demand, or raise gpu_count for a model.`,
      errors: [{ field: 'gpu_type', rule: `must have at least ${launch.minVramGb} GB of VRAM in the contract` }],
    });
  }
  if (!large.some((slot) => honoursDisk(slot, launch)) && large.length > 0) {
    fail('disk_unavailable', {
      detail: `No slot of ${launch.gpuType} is on a host that honours a disk of ${launch.diskGb} GB. Leave disk_gb out.`,
      errors: [{ field: 'disk_gb', rule: 'must be honoured by a host of the contract' }],
    });
  }
  return fail('reservation/no_capacity', {
    detail: noRoomText(large, awaited, launch),
    retryAfterSeconds: RETRY_AFTER_SECONDS,
  });
}

/**
 * Chooses the GPU type for a launch that names none. It takes the smallest type that is large enough among the slots of active contracts,
 * so that large GPUs stay for those who need them; a type with a free slot comes first. If no slot fits, it returns a type that `choose` refuses.
 */
export async function chooseType(tx: Tx, launch: Omit<ReservedLaunch, 'gpuType'>, nowMs: number): Promise<string> {
  const active = (await contractsOf(tx, launch.orgId, nowMs)).filter(({ status }) => status === 'active');
  const slots: Slots[] = [];
  for (const { id } of active) slots.push(...(await slotsOf(tx, id)));
  const ranked = slots.toSorted((a, b) => a.vram_gb - b.vram_gb || (a.gpu_type < b.gpu_type ? -1 : 1));
  const asked = (slot: Slots): ReservedLaunch => ({ ...launch, gpuType: slot.gpu_type });
  const chosen =
    ranked.find((slot) => hasCapacity(slot, asked(slot))) ??
    ranked.find((slot) => isFor(slot, asked(slot)) && hasVram(slot, asked(slot))) ??
    ranked.at(-1);
  return chosen?.gpu_type ?? active[0]?.commitment[0]?.gpu_type ?? '';
}

/** The contracts with their status at `nowMs`, cancelled ones too. */
async function contractsOf(tx: Tx, orgId: string, nowMs: number): Promise<store.ReservationRow[]> {
  return (await store.reservationsOfOrg(tx, orgId)).map((contract) => standing(contract, nowMs));
}

/** The active contracts that cover the launch; the one that ends last comes first. @throws ServiceError if there is none */
function coveringContracts(held: readonly store.ReservationRow[], launch: ReservedLaunch): store.ReservationRow[] {
  const isCovering = ({ commitment }: store.ReservationRow): boolean =>
    commitment.some((entry) => covers(entry, launch));
  const active = held.filter(({ status }) => status === 'active');
  const covering = active.filter(isCovering);
  if (covering.length > 0) return covering.toSorted((a, b) => b.ends_ms - a.ends_ms || (a.id < b.id ? -1 : 1));
  // A suspended contract for this GPU type gives a more useful error than an active contract for another type.
  const inactive = held.filter(({ status }) => status !== 'active');
  const reason = active.length === 0 ? inactive : inactive.filter(isCovering);
  if (reason.length > 0) fail('reservation/contract_inactive', inactiveText(reason));
  return fail('reservation/gpu_type_mismatch', mismatchText(active, launch));
}

function covers(entry: { gpu_type: string; region: string }, { gpuType, region }: ReservedLaunch): boolean {
  return entry.gpu_type === gpuType && (region === null || entry.region === region);
}

function inactiveText(contracts: readonly store.ReservationRow[]): string {
  const described = contracts.map(({ id, status, starts_ms: startsMs, ends_ms: endsMs }) => {
    if (status === 'pending') return `${id} begins at ${isoTime(startsMs)}`;
    return status === 'expired' ? `${id} ended at ${isoTime(endsMs)}` : `${id} is ${status}`;
  });
  return `No reservation contract for this is active: ${described.slice(0, 3).join(', ')}. Use tier on_demand, or ask the operator.`;
}

function mismatchText(active: readonly store.ReservationRow[], { gpuType, region }: ReservedLaunch): string {
  const covered = active.flatMap(({ commitment }) => commitment.map((entry) => `${entry.gpu_type} in ${entry.region}`));
  const wanted = region === null ? gpuType : `${gpuType} in ${region}`;
  return `No active contract covers ${wanted}. Covered: ${[...new Set(covered)].join(', ')}. Use tier on_demand for anything else.`;
}

function awaitedGpus(wants: readonly SlotWant[], { gpuType, region }: ReservedLaunch): number {
  const right = wants.filter((want) => want.gpu_type === gpuType && (region === null || want.region === region));
  return right.reduce((sum, want) => sum + want.gpus_missing, 0);
}

function noRoomText(
  slots: readonly Slots[],
  awaited: number,
  { gpuType, gpuCount, diskGb, roomGb }: ReservedLaunch,
): string {
  const sum = (numberOf: (slot: Slots) => number): number => slots.reduce((total, slot) => total + numberOf(slot), 0);
  const [all, inUse, free] = [sum((slot) => slot.slots), sum((slot) => slot.in_use), sum((slot) => slot.free)];
  const onOne = Math.max(0, ...slots.map((slot) => slot.free));
  const away = all - inUse - free;
  const parts = [`${inUse} of ${all} slots of ${gpuType} are in use`];
  if (away > 0) parts.push(`${away} are on hosts that are not available`);
  if (awaited > 0) parts.push(`${awaited} more are awaited from others who use them`);
  if (free > 0) parts.push(`at most ${onOne} are free on one machine`);
  const neededGb = diskGb ?? roomGb;
  if (onOne >= gpuCount && neededGb !== undefined)
    parts.push(`and none of these hosts has ${neededGb} GB of disk left`);
  return `The launch needs ${gpuCount} on one machine: ${parts.join(', ')}. There is no fallback to on_demand; try again when an instance has ended.`;
}
