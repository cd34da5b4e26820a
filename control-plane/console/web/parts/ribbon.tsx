// Money over time: solid is billed, hatched is free. The two hatches are defined once, by the frame of the console.
import type { ComponentChildren } from 'preact';

export interface RibbonPiece {
  fromMs: number;
  untilMs: number;
  kind: 'billed' | 'free' | 'outage';
}

interface RibbonProps {
  /** The same in words. */
  label: string;
  fromMs: number;
  untilMs: number;
  pieces: readonly RibbonPiece[];
  isTall?: boolean;
}

/** A hatched piece is at least this wide, so that a boot of two minutes can be seen in a day. */
const HATCHED_PERCENT_MIN = 1.8;

export function Ribbon({ label, fromMs, untilMs, pieces, isTall = false }: RibbonProps) {
  const spanMs = Math.max(1, untilMs - fromMs);
  const shown = pieces.filter((piece) => piece.untilMs > fromMs && piece.fromMs < untilMs);
  // Hatched pieces lie above solid ones: a narrow one is drawn wider than it is.
  const ordered = shown.toSorted((a, b) => Number(a.kind !== 'billed') - Number(b.kind !== 'billed'));
  return (
    <svg class={isTall ? 'ribbon tall' : 'ribbon'} role="img" aria-label={label}>
      {ordered.map((piece) => {
        const start = ((Math.max(piece.fromMs, fromMs) - fromMs) / spanMs) * 100;
        const width = ((Math.min(piece.untilMs, untilMs) - fromMs) / spanMs) * 100 - start;
        return <Piece key={`${piece.kind} ${piece.fromMs}`} start={start} width={width} kind={piece.kind} />;
      })}
    </svg>
  );
}

function Piece({ start, width, kind }: { start: number; width: number; kind: RibbonPiece['kind'] }) {
  if (kind === 'billed') return <rect x={percent(start)} width={percent(width)} height="100%" class="f1" />;
  const wide = Math.max(width, HATCHED_PERCENT_MIN);
  const box = { x: percent(Math.min(start, 100 - wide)), width: percent(wide), height: '100%' };
  return (
    <>
      <rect {...box} class="f0" />
      <rect {...box} fill={kind === 'free' ? 'url(#free)' : 'url(#out)'} />
    </>
  );
}

const percent = (value: number): string => `${value.toFixed(2)}%`;

/** What the three fills mean. */
export function RibbonKey() {
  return (
    <span class="key">
      <KeyEntry fill="billed">billed</KeyEntry>
      <KeyEntry fill="free">boot, free</KeyEntry>
      <KeyEntry fill="outage">outage, not charged</KeyEntry>
    </span>
  );
}

function KeyEntry({ fill, children }: { fill: RibbonPiece['kind']; children: ComponentChildren }) {
  const box = { width: 10, height: 10, rx: 2 };
  return (
    <span>
      <svg aria-hidden="true">
        {fill === 'billed' ? (
          <rect {...box} class="f1" />
        ) : (
          <rect {...box} fill={fill === 'free' ? 'url(#free)' : 'url(#out)'} />
        )}
      </svg>
      {children}
    </span>
  );
}
