// Pure: what the NVIDIA driver writes into the kernel log about its cards, and what each error number (Xid) means for whoever rents one.
import type { GpuFault } from '../../shared/protocol/inventory.ts';

export type Severity = GpuFault['severity'];

/** What one line of the kernel log says. `bus_id` is written as `busIdOf` writes it. */
export type DriverMessage =
  | { kind: 'card'; bus_id: string; uuid: string }
  | { kind: 'fault'; bus_id: string; finding: Finding }
  /** The driver itself says that nothing is left to mend. */
  | { kind: 'mended'; bus_id: string }
  /** The driver was loaded anew: every card has been reset. */
  | { kind: 'loaded' };

export interface Finding {
  xid: number;
  severity: Severity;
  /** For people, without the number. */
  words: string;
}

/**
 * NVIDIA's catalogue names a reset of the card or the host as the one remedy, and nothing computes on it before that. Everything that a program can
 * bring about by itself is left out, here and below: 13, 31, 32, 43, 45, 68, 69 and 109 are an application's own faults, 63, 92 and 94
 * are errors that the card has dealt with (what it still needs is asked of nvidia-smi).
 */
const BROKEN: Readonly<Record<number, string>> = {
  62: 'its microcontroller has halted',
  79: 'it has fallen off the bus',
  95: 'a memory error could not be contained',
  119: 'its system processor (GSP) does not answer',
  120: 'its system processor (GSP) has failed',
  140: 'a memory error could not be recovered from',
  143: 'it could not be initialised',
};

/** The card needs a reset or an inspection before somebody new gets it, but whoever has it can compute on it. */
const UNFIT: Readonly<Record<number, string>> = {
  46: 'it stopped processing',
  48: 'a memory error could not be corrected',
  64: 'a bad memory row could not be replaced',
  74: 'its NVLink has failed',
};

/** The number by which newer drivers say what the card needs now, whatever the cause was. */
const RECOVERY_ACTION = 154;
const WORDS_CHARS_MAX = 100;

/**
 * Reads a line that the kernel wrote; undefined where it says nothing of this kind. Only the beginning of a line counts: the kernel also
 * quotes names that a tenant has chosen, further back.
 */
export function readDriverLine(text: string): DriverMessage | undefined {
  const card = /^NVRM: GPU at (?:PCI:)?([0-9a-f:]+): (GPU-[0-9a-f-]+)/i.exec(text);
  if (card?.[1] !== undefined && card[2] !== undefined) {
    return { kind: 'card', bus_id: busIdOf(card[1]), uuid: card[2] };
  }
  if (text.startsWith('NVRM: loading NVIDIA UNIX')) return { kind: 'loaded' };
  const [, bus, number, rest = ''] = /^NVRM: Xid \((?:PCI:)?([0-9a-f:.]+)\): (\d{1,5})(.*)/i.exec(text) ?? [];
  if (bus === undefined || number === undefined) return undefined;
  return readXid(busIdOf(bus), Number(number), rest);
}

/** `0000:3b:00`: the driver's own way in the log. nvidia-smi writes a longer domain, capitals and a function. */
export function busIdOf(text: string): string {
  const [, domain = '', slot = ''] = /^([0-9a-f]+):([0-9a-f]{2}:[0-9a-f]{2})/i.exec(text) ?? [];
  return `${domain.slice(-4).padStart(4, '0')}:${slot}`.toLowerCase();
}

function readXid(busId: string, xid: number, rest: string): DriverMessage | undefined {
  if (xid === RECOVERY_ACTION) return readRecoveryAction(busId, rest);
  const severity = xid in BROKEN ? 'broken' : 'unfit';
  const words = BROKEN[xid] ?? UNFIT[xid];
  return words === undefined ? undefined : { kind: 'fault', bus_id: busId, finding: { xid, severity, words } };
}

/** `GPU recovery action changed from 0x0 (None) to 0x1 (GPU Reset Required)`. One that is to be drained first still works. */
function readRecoveryAction(busId: string, rest: string): DriverMessage | undefined {
  const action = / to 0x[0-9a-f]+ \(([^()]+)\)/i.exec(rest)?.[1];
  if (action === undefined) return undefined;
  if (/^none$/i.test(action)) return { kind: 'mended', bus_id: busId };
  const severity = /^drain/i.test(action) ? 'unfit' : 'broken';
  const words = `the driver says: ${action.slice(0, WORDS_CHARS_MAX)}`;
  return { kind: 'fault', bus_id: busId, finding: { xid: RECOVERY_ACTION, severity, words } };
}
