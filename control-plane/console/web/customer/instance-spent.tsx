// The cells of the list of instances that are about money: the last 24 hours as a ribbon, and what was spent.
import { useEffect } from 'preact/hooks';
import type { Instance } from '../../../../shared/api/instance.ts';
import { dollars, duration } from '../core/format.ts';
import { Ribbon, type RibbonPiece } from '../parts/ribbon.tsx';
import type { Costs } from './cost-reads.ts';

const DAY_MS = 86_400_000;

const KINDS = { starting: 'free', charged: 'billed', not_charged: 'outage' } as const;
const WORDS = { billed: 'charged', free: 'starting', outage: 'not charged' } as const;

export function LastDay({ instance: { id, name }, costs }: { instance: Instance; costs: Costs }) {
  const cost = costs.of(id).value;
  const untilMs = cost === undefined ? 0 : Date.parse(cost.as_of);
  const fromMs = untilMs - DAY_MS;
  const pieces = (cost?.last_24_hours ?? []).map(({ kind, from, until }) => ({
    kind: KINDS[kind],
    fromMs: Math.max(fromMs, Date.parse(from)),
    untilMs: until === null ? untilMs : Date.parse(until),
  }));
  const label = `${name ?? id} over the last 24 hours: ${cost === undefined ? 'not known yet' : wordsOf(pieces)}`;
  return <Ribbon label={label} fromMs={fromMs} untilMs={untilMs} pieces={pieces} />;
}

function wordsOf(pieces: readonly RibbonPiece[]): string {
  const parts = (['billed', 'free', 'outage'] as const).flatMap((kind) => {
    const ms = pieces.filter((piece) => piece.kind === kind).reduce((sum, each) => sum + each.untilMs - each.fromMs, 0);
    return ms <= 0 ? [] : [`${duration(ms / 1_000)} ${WORDS[kind]}`];
  });
  return parts.length === 0 ? 'nothing' : parts.join(', ');
}

export function Spent({ id, costs }: { id: string; costs: Costs }) {
  useEffect(() => costs.draw(id), [id]);
  const cost = costs.of(id).value;
  if (cost !== undefined) return <b>{dollars(cost.cost)}</b>;
  return <span class="quiet">{costs.error.value === undefined ? '…' : 'unknown'}</span>;
}

/** The sum of the rows that are drawn, once all of them are known. */
export function SpentByRows({ costs }: { costs: Costs }) {
  const known = costs.drawn.value.map((id) => costs.of(id).value?.cost);
  if (known.includes(undefined)) return <>…</>;
  return <>{dollars(known.reduce((sum, cost) => sum + Number(cost), 0))}</>;
}
