// Remembers the faults of this host's GPUs (cards), and decides which GPUs must not be rented out, and why. Pure.
import { z } from 'zod';
import { GPUS_PER_MACHINE_MAX } from '../../shared/limits.ts';
import { GpuFacts, GpuFault } from '../../shared/protocol/inventory.ts';
import type { KernelRecord } from './kernel-log.ts';
import { busIdOf, type DriverMessage, readDriverLine } from './xids.ts';

const Finding = z.strictObject({ xid: z.number(), severity: GpuFault.shape.severity, words: z.string() });

export const Memory = z.strictObject({
  /** The boot of the host that all members except `breaks` are about. After a reboot, only `breaks` is kept. */
  boot_id: z.string(),
  /** The last record of the kernel log that was taken into account. */
  heard_seq: z.number(),
  cards: z.array(
    z.strictObject({
      /** UUID of the card; empty if only its bus id is known, from the kernel log. */
      uuid: z.string(),
      bus_id: z.string(),
      /** Facts from the last time that nvidia-smi listed the card; null if it never has. */
      listed: GpuFacts.nullable(),
      /** Number of listings in a row without this card. It is not counted above MISSED_MIN. */
      missed: z.number(),
      /** The errors that the driver has reported and not taken back: for each error number (Xid), the last one. */
      findings: z.array(Finding),
    }),
  ),
  /** One entry each time that a card broke. A card that stays broken gets no second entry. */
  breaks: z.array(z.strictObject({ uuid: z.string(), at_ms: z.number() })),
});
export type Memory = z.infer<typeof Memory>;
type Card = Memory['cards'][number];

/** Number of listings without a card after which it counts as lost. A single one may be a passing fault. */
const MISSED_MIN = 2;
/** A card that breaks so often within BREAKS_MS, although each reset repaired it, is not offered. */
const BREAKS_MAX = 3;
const BREAKS_MS = 7 * 24 * 3_600_000;

/** The stored memory of an earlier process, if any. A new boot has reset every card, so only `breaks` stays. */
export function memoryOf(stored: Memory | undefined, bootId: string): Memory {
  if (stored?.boot_id === bootId) return stored;
  return { boot_id: bootId, heard_seq: -1, cards: [], breaks: stored?.breaks ?? [] };
}

/** The memory after these records of the kernel log. Records that were read before change nothing. */
export function afterRecords(memory: Memory, records: readonly KernelRecord[], nowMs: number): Memory {
  const news = records.flatMap(({ seq, text }) => {
    const one = seq > memory.heard_seq ? readDriverLine(text) : undefined;
    return one === undefined ? [] : [one];
  });
  if (news.length === 0) return memory;
  const heard_seq = Math.max(memory.heard_seq, ...records.map(({ seq }) => seq));
  return withBreaks(memory, { ...memory, heard_seq, cards: news.reduce(afterNews, memory.cards) }, nowMs);
}

/** The memory after nvidia-smi has listed these cards. */
export function afterListing(memory: Memory, listed: readonly GpuFacts[], nowMs: number): Memory {
  const others = memory.cards.filter((card) => !listed.some((gpu) => isSame(card, gpu)));
  const cards = listed.map((gpu) => {
    const known = memory.cards.find((card) => isSame(card, gpu));
    return { uuid: gpu.uuid, bus_id: placeOf(gpu), listed: gpu, missed: 0, findings: known?.findings ?? [] };
  });
  const absent = others.map((card) => ({ ...card, missed: Math.min(card.missed + 1, MISSED_MIN) }));
  return withBreaks(memory, { ...memory, cards: [...cards, ...absent] }, nowMs);
}

/** One fault for each card that must not be rented, with the most serious reason. `unfit`: why cards must not get a new rental, by UUID. */
export function faultsOf(memory: Memory, unfit: ReadonlyMap<string, string>, nowMs: number): GpuFault[] {
  return memory.cards
    .flatMap((card) => {
      const [first] = reasonsOf(card, memory, { unfit, nowMs });
      return card.uuid === '' || first === undefined ? [] : [{ uuid: card.uuid, ...first }];
    })
    .toSorted((a, b) => (a.uuid < b.uuid ? -1 : 1))
    .slice(0, GPUS_PER_MACHINE_MAX);
}

/** `unfit` with the cards that the supplier keeps. */
export function withExcluded(unfit: ReadonlyMap<string, string>, excluded: readonly string[]): Map<string, string> {
  return new Map([
    ...unfit,
    ...excluded.map((uuid): [string, string] => [uuid, 'excluded_gpus of agent.yaml names it']),
  ]);
}

/** Cards that the last listing omitted but that do not count as lost yet, as they were listed before. */
export function passedOver({ cards }: Memory): GpuFacts[] {
  return cards.flatMap((card) => (card.listed !== null && card.missed > 0 && !isLost(card) ? [card.listed] : []));
}

/** Why a card must not be rented, the most serious reason first. */
function reasonsOf(
  card: Card,
  { breaks }: Memory,
  { unfit, nowMs }: { unfit: ReadonlyMap<string, string>; nowMs: number },
): Omit<GpuFault, 'uuid'>[] {
  const findings = card.findings.map(({ xid, severity, words }) => ({ severity, detail: `Xid ${xid}: ${words}` }));
  const other = unfit.get(card.uuid);
  const often = breaks.filter(({ uuid, at_ms }) => uuid === card.uuid && at_ms > nowMs - BREAKS_MS).length;
  const reasons: Omit<GpuFault, 'uuid'>[] = findings.filter(({ severity }) => severity === 'broken');
  if (isLost(card)) reasons.push({ severity: 'broken', detail: 'nvidia-smi does not list it any more' });
  reasons.push(...findings.filter(({ severity }) => severity === 'unfit'));
  if (other !== undefined) reasons.push({ severity: 'unfit', detail: other });
  if (often >= BREAKS_MAX)
    reasons.push({ severity: 'unfit', detail: `it broke ${often} times in seven days: have it inspected` });
  return reasons;
}

function afterNews(cards: Card[], news: DriverMessage): Card[] {
  if (news.kind === 'loaded') return cards.map((card) => ({ ...card, findings: [] }));
  const known = cards.find((card) => card.bus_id === news.bus_id);
  const before: Card = known ?? { uuid: '', bus_id: news.bus_id, listed: null, missed: 0, findings: [] };
  const others = cards.filter((card) => card !== known);
  switch (news.kind) {
    case 'card':
      return [...others, { ...before, uuid: news.uuid }];
    case 'mended':
      return [...others, { ...before, findings: [] }];
    case 'fault': {
      const findings = before.findings.filter(({ xid }) => xid !== news.finding.xid);
      return [...others, { ...before, findings: [...findings, news.finding] }];
    }
  }
}

/** Records which cards are broken in `after` and were not in `before`, and removes old entries. */
function withBreaks(before: Memory, after: Memory, nowMs: number): Memory {
  const broken = (cards: readonly Card[]): string[] => cards.filter(isBroken).map(({ uuid }) => uuid);
  const already = broken(before.cards);
  const fresh = broken(after.cards).filter((uuid) => uuid !== '' && !already.includes(uuid));
  const kept = after.breaks.filter(({ at_ms }) => at_ms > nowMs - BREAKS_MS);
  return { ...after, breaks: [...kept, ...fresh.map((uuid) => ({ uuid, at_ms: nowMs }))] };
}

function isBroken(card: Card): boolean {
  return isLost(card) || card.findings.some(({ severity }) => severity === 'broken');
}

function isLost({ missed }: Card): boolean {
  return missed >= MISSED_MIN;
}

/** Cards are compared by UUID. A card without one, known only from the kernel log, is compared by its bus id. */
function isSame(card: Card, gpu: GpuFacts): boolean {
  return card.uuid === '' ? card.bus_id === placeOf(gpu) : card.uuid === gpu.uuid;
}

function placeOf({ bus_id }: GpuFacts): string {
  return bus_id === '' ? '' : busIdOf(bus_id);
}
