// The words of the mails. Pure. A name that people have chosen, or a text of a host, is one line in quotation marks and never stands in a subject.
import { isoTime } from '../../../shared/clock.ts';
import { shortDollarText } from '../../../shared/money.ts';
import type { EventData } from '../../base/events/events.ts';
import type { Topic } from './topics.ts';

/** Lines of one letter. What is above them is only counted. */
const LINES_MAX = 50;
const CHARS_MAX = 300;
const GOOD_NEWS: ReadonlySet<string> = new Set([
  'instance.recovered',
  'instance.gpu_mended',
  'machine.online',
  'machine.on_offer',
  'machine.gpu_mended',
]);

/** Something that has happened. */
export interface Told {
  type: string;
  subjectId: string;
  /** What people call the instance or the machine; null if they have not named it. */
  name: string | null;
  data: EventData;
  createdMs: number;
}

export interface Around {
  orgName: string;
  /** The origin of the console. */
  origin: string;
  nowMs: number;
}

export interface Letter {
  subject: string;
  body: string;
}

export interface Money {
  belowHours: number;
  balanceUcents: bigint;
  rateUcentsPerHour: bigint;
}

/** `told` are the instances that were warned, and `money` is the balance now. */
export function balanceLetter(told: readonly Told[], money: Money, around: Around): Letter {
  const { belowHours, balanceUcents, rateUcentsPerHour } = money;
  const instances = [...new Map(told.map((each) => [each.subjectId, nameOf(each)])).values()];
  return letter(`The balance ends in less than ${belowHours} h`, around, [
    `At ${timeText(around.nowMs)}, the balance of ${orgOf(around)} ends in less than ${belowHours} h at the present rate.`,
    `The balance is $${shortDollarText(balanceUcents, 'down')}. Running instances cost $${shortDollarText(rateUcentsPerHour, 'up')} an hour.`,
    'When the balance ends, the instances are stopped and their disks are deleted. These are concerned:',
    listOf(instances),
    `Add funds, or delete instances that you do not need: ${around.origin}/console/usage`,
  ]);
}

/** `told` are the instances that were stopped. */
export function stoppedLetter(told: readonly Told[], around: Around): Letter {
  return letter('Instances were stopped, because the balance has ended', around, [
    `The balance of ${orgOf(around)} has ended. These instances were stopped:`,
    listOf(told.map((each) => `${timeText(each.createdMs)}: ${nameOf(each)}`)),
    'They cost nothing from then on. Their disks are deleted.',
    `Add funds: ${around.origin}/console/usage\nThen launch them again: ${around.origin}/console/launch`,
  ]);
}

/** `told` is what has happened to instances that ran, oldest first. */
export function outageLetter(told: readonly Told[], around: Around): Letter {
  const isAboutHosts = told.every(({ type }) => type === 'instance.host_leaving');
  const subject = isGood(told) ? 'Your instances work again' : 'An outage of your instances';
  return letter(isAboutHosts ? 'The host of your instances has another last day' : subject, around, [
    `This has happened to instances of ${orgOf(around)}:`,
    listOf(told.map((each) => `${timeText(each.createdMs)}: ${outageWords(each)}`)),
    isAboutHosts
      ? 'The instances run on until you end them. Move what you need before the host leaves.'
      : 'The time of an outage or of a broken GPU is not charged. You need not ask for that. An instance that does not come back within 30 minutes ends.',
    `See your instances, and launch another one if one has ended: ${around.origin}/console/instances`,
  ]);
}

/** `told` is what has happened to machines of a supplier, oldest first. */
export function machineLetter(told: readonly Told[], around: Around): Letter {
  return letter(isGood(told) ? 'Your machines are in order again' : 'Trouble with your machines', around, [
    `This has happened to machines of ${orgOf(around)}:`,
    listOf(told.map((each) => `${timeText(each.createdMs)}: ${machineWords(each)}`)),
    'A rental on a machine that is offline, or with a GPU that is broken, is not charged, earns nothing, and ends after 30 minutes. Other rentals go on.',
    `The checks of each machine say what is wrong with it, and what to do: ${around.origin}/console/machines`,
  ]);
}

/** `told` are changes of the address to which a supplier is paid, oldest first. */
export function payoutLetter(told: readonly Told[], around: Around): Letter {
  return letter('Your payout address was changed', around, [
    `This has happened to the address to which ${orgOf(around)} is paid:`,
    listOf(told.map((each) => `${timeText(each.createdMs)}: ${destinationWords(each)}`)),
    'If none of you has asked for this, cancel the change, or name your own address again. Then revoke the API keys that may change it: those with the scope supply:write.',
    `See where you are paid: ${around.origin}/console/earnings`,
  ]);
}

function isGood(told: readonly Told[]): boolean {
  return told.every(({ type }) => GOOD_NEWS.has(type));
}

function machineWords(told: Told): string {
  const name = nameOf(told);
  switch (told.type) {
    case 'machine.offline':
      return `${name} is offline${sinceOf(told)}.`;
    case 'machine.online':
      return `${name} is online again.`;
    case 'machine.off_offer':
      return `Nothing of ${name} is on offer${sinceOf(told)}.${whyOf(told)}`;
    case 'machine.on_offer':
      return `${name} is on offer again.`;
    case 'machine.gpu_mended':
      return `The GPU ${quoted(String(told.data['gpu_uuid']))} of ${name} works again.`;
    default:
      return `A GPU of ${name} is broken.${whyOf(told)}`;
  }
}

/** Addresses are masked in the event. */
function destinationWords({ type, data }: Told): string {
  const named = `${String(data['address'])} on ${String(data['chain'])}`;
  if (type === 'supplier.destination_cancelled') return `The change to ${named} was cancelled.`;
  const from = timeText(Date.parse(String(data['in_force_at'])));
  const before = data['old_address'];
  if (before === null) return `${named} is the first address, and is in force.`;
  return `${named} replaces ${String(before)} on ${String(data['old_chain'])} from ${from} on.`;
}

function outageWords(told: Told): string {
  const name = nameOf(told);
  const since = sinceOf(told);
  const why = whyOf(told);
  switch (told.type) {
    case 'instance.unreachable':
      return `${name} cannot be reached. It is not charged${since}.`;
    case 'instance.recovered':
      return `${name} can be reached again. It is charged again${since}.`;
    case 'instance.gpu_broken':
      return `A GPU of ${name} is broken. It is not charged until the GPU works again.${why}`;
    case 'instance.gpu_mended':
      return `The GPUs of ${name} work again. It is charged again${since}.`;
    case 'instance.host_leaving':
      return `The supplier of the host of ${name} has changed until when it offers the host.${why}`;
    case 'instance.credit_held':
      return `A credit for ${name} waits for the operator.${why}`;
    case 'instance.terminated':
      return `${name} was ended by its host. It is not charged any more.${why}`;
    default:
      return `${name} has failed. It is not charged any more.${why}`;
  }
}

function sinceOf({ data: { since_ms: sinceMs } }: Told): string {
  return typeof sinceMs === 'number' ? ` since ${timeText(sinceMs)}` : '';
}

function whyOf({ data: { reason } }: Told): string {
  return typeof reason === 'string' ? ` Reason: ${quoted(reason)}` : '';
}

function letter(what: string, { origin }: Around, paragraphs: readonly string[]): Letter {
  const { host } = new URL(origin);
  const off = `You get this mail from ${host} because you are a member of this organisation. To get no such mails, turn notices off in the console, under Sign-in and security: ${origin}/console/security`;
  return { subject: `${what} (${host})`, body: `${[...paragraphs, off].join('\n\n')}\n` };
}

function listOf(lines: readonly string[]): string {
  const more = lines.length - LINES_MAX;
  const shown = lines.slice(0, LINES_MAX).map((line) => `- ${line}`);
  return [...shown, ...(more > 0 ? [`- and ${more} more`] : [])].join('\n');
}

function nameOf({ subjectId, name }: Told): string {
  return name === null ? subjectId : `${subjectId} (${quoted(name)})`;
}

function orgOf({ orgName }: Around): string {
  return `the organisation ${quoted(orgName)}`;
}

/** A text of others in one line. It could otherwise look like further lines of the mail, or like words of the operator. */
function quoted(text: string): string {
  const line = text
    .replaceAll(/[\p{C}\p{Zl}\p{Zp}\s]+/gu, ' ')
    .trim()
    .replaceAll('"', "'");
  return `"${line.length > CHARS_MAX ? `${line.slice(0, CHARS_MAX)}…` : line}"`;
}

/** The time in seconds: `2026-01-01 12:00:05 UTC`. */
function timeText(ms: number): string {
  return `${isoTime(ms).slice(0, 19).replace('T', ' ')} UTC`;
}

/** The letters that need nothing but what has happened. */
export const PLAIN_LETTERS: Readonly<
  Record<Exclude<Topic, 'balance'>, (told: readonly Told[], around: Around) => Letter>
> = { stopped: stoppedLetter, outage: outageLetter, machine: machineLetter, payout: payoutLetter };
