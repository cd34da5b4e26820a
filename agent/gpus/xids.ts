// Interprets the NVIDIA driver's lines in the kernel log, and what each error number (Xid) means for a rental. Pure.
import type { GpuFault } from '../../shared/protocol/inventory.ts';

export type Severity = GpuFault['severity'];

/** The content of one line. `bus_id` has the form of `busIdOf`. */
export type DriverMessage =
  | { kind: 'card'; bus_id: string; uuid: string }
  | { kind: 'fault'; bus_id: string; finding: Finding }
  /** The driver reports that the card needs no repair any more. */
  | { kind: 'mended'; bus_id: string }
  /** The driver was loaded again, which resets every card. */
  | { kind: 'loaded' };

export interface Finding {
  xid: number;
  severity: Severity;
  /** The error in words, without its number. */
  words: string;
}

/**
 * Nothing computes on the card until a reset of the card or the host (NVIDIA's catalogue names no other remedy). Errors that a program
 * can cause are left out, here and below: 13, 31, 32, 43, 45, 68, 69 and 109 are faults of an application. The card has handled 63, 92
 * and 94 by itself (nvidia-smi shows what it still needs).
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

/** The card needs a reset or an inspection before its next rental, but the current rental can compute on it. */
const UNFIT: Readonly<Record<number, string>> = {
  46: 'it stopped processing',
  48: 'a memory error could not be corrected',
  64: 'a bad memory row could not be replaced',
  74: 'its NVLink has failed',
};

/** Newer drivers use this number to report the action that the card needs now, for any cause. */
const RECOVERY_ACTION = 154;
const WORDS_CHARS_MAX = 100;

/**
 * Parses a line of the kernel; undefined if it is not one of these messages. Only the beginning of a line counts, because further back
 * the kernel quotes names that a tenant has chosen.
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

/** The bus id in the form of the driver's log, `0000:3b:00`. nvidia-smi writes the same id with a longer domain, capitals and a function. */
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

/** Parses `GPU recovery action changed from 0x0 (None) to 0x1 (GPU Reset Required)`. A card that must be drained still works. */
function readRecoveryAction(busId: string, rest: string): DriverMessage | undefined {
  const action = / to 0x[0-9a-f]+ \(([^()]+)\)/i.exec(rest)?.[1];
  if (action === undefined) return undefined;
  if (/^none$/i.test(action)) return { kind: 'mended', bus_id: busId };
  const severity = /^drain/i.test(action) ? 'unfit' : 'broken';
  const words = `the driver says: ${action.slice(0, WORDS_CHARS_MAX)}`;
  return { kind: 'fault', bus_id: busId, finding: { xid: RECOVERY_ACTION, severity, words } };
}
