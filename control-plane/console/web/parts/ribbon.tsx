// A bar over time. For money, solid pieces are billed and hatched pieces are free. The two hatches are defined once, by the frame of the console.
// The bar can also show health over time, in the colours of states.
import type { ComponentChildren } from 'preact';

type Health = 'up' | 'silent' | 'down';

export interface RibbonPiece {
  fromMs: number;
  untilMs: number;
  kind: 'billed' | 'free' | 'outage' | Health;
}

interface RibbonProps {
  /** Description of the bar in words, for people who do not see it. */
  label: string;
  fromMs: number;
  untilMs: number;
  pieces: readonly RibbonPiece[];
  isTall?: boolean;
}

/** Least width of a hatched piece, so that a boot of two minutes is visible in a ribbon of a day. */
const HATCHED_PERCENT_MIN = 1.8;
/** Least width of a piece of bad health, so that a failure of one minute is visible in a ribbon of a day. */
const TROUBLE_PERCENT_MIN = 0.6;

/** Drawing order: later kinds cover earlier ones. Narrow pieces are drawn wider than they are, and must stay visible. */
const ORDER: readonly RibbonPiece['kind'][] = ['billed', 'up', 'free', 'silent', 'outage', 'down'];

export function Ribbon({ label, fromMs, untilMs, pieces, isTall = false }: RibbonProps) {
  const spanMs = Math.max(1, untilMs - fromMs);
  const shown = pieces.filter((piece) => piece.untilMs > fromMs && piece.fromMs < untilMs);
  const ordered = shown.toSorted((a, b) => ORDER.indexOf(a.kind) - ORDER.indexOf(b.kind));
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

const SOLID: Partial<Record<RibbonPiece['kind'], string>> = { billed: 'f1', up: 'fok', silent: 'fwarn', down: 'fbad' };

function Piece({ start, width, kind }: { start: number; width: number; kind: RibbonPiece['kind'] }) {
  const fill = SOLID[kind];
  const least = fill === undefined ? HATCHED_PERCENT_MIN : kind === 'billed' || kind === 'up' ? 0 : TROUBLE_PERCENT_MIN;
  const wide = Math.max(width, least);
  const box = { x: percent(Math.min(start, 100 - wide)), width: percent(wide), height: '100%' };
  if (fill !== undefined) return <rect {...box} class={fill} />;
  return (
    <>
      <rect {...box} class="f0" />
      <rect {...box} fill={kind === 'free' ? 'url(#free)' : 'url(#out)'} />
    </>
  );
}

const percent = (value: number): string => `${value.toFixed(2)}%`;

/** The times below a ribbon of the last 24 hours. */
export function DayAxis() {
  return (
    <div class="axis">
      <span>24 h ago</span>
      <span>12 h</span>
      <span>now</span>
    </div>
  );
}

/** What the three fills of money mean. */
export function RibbonKey() {
  return (
    <span class="key">
      <KeyEntry fill="billed">billed</KeyEntry>
      <KeyEntry fill="free">boot, free</KeyEntry>
      <KeyEntry fill="outage">outage, not charged</KeyEntry>
    </span>
  );
}

function KeyEntry({ fill, children }: { fill: 'billed' | 'free' | 'outage'; children: ComponentChildren }) {
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
