// The words of letters: what people or hosts have written forges no line and stands in no subject.
import { expect, test } from 'vitest';
import {
  balanceLetter,
  type Letter,
  machineLetter,
  outageLetter,
  payoutLetter,
  stoppedLetter,
  type Told,
} from '../../../../control-plane/rental/notices/letters.ts';

const NOW_MS = Date.UTC(2026, 0, 1, 12, 0, 5);
const FORGED = 'x\r\nBcc: eve@example.com\r\n\r\nThe balance is \u2028$1,000,000\u202e\u0000';
const around = { orgName: FORGED, origin: 'https://api.example.com', nowMs: NOW_MS };
const told = (type: string, more: Partial<Told> = {}): Told => ({
  type,
  subjectId: 'i-1',
  name: FORGED,
  data: { reason: FORGED, since_ms: NOW_MS },
  createdMs: NOW_MS,
  ...more,
});
const money = { belowHours: 6, balanceUcents: 1_250_000_000n, rateUcentsPerHour: 400_000_000n };
const OUTAGES = [
  'instance.unreachable',
  'instance.recovered',
  'instance.failed',
  'instance.terminated',
  'instance.gpu_broken',
  'instance.gpu_mended',
  'instance.credit_held',
  'instance.host_leaving',
];
const MACHINES = [
  'machine.offline',
  'machine.online',
  'machine.off_offer',
  'machine.on_offer',
  'machine.gpu_broken',
  'machine.gpu_mended',
];

const LETTERS: [string, Letter][] = [
  ['a balance', balanceLetter([told('instance.balance_low')], money, around)],
  ['stopped instances', stoppedLetter([told('instance.stopping')], around)],
  ...OUTAGES.map((type): [string, Letter] => [type, outageLetter([told(type)], around)]),
  ...MACHINES.map((type): [string, Letter] => [type, machineLetter([told(type)], around)]),
  ['a payout address', payoutLetter([told('supplier.destination_cancelled')], around)],
];

test.each(LETTERS)('the letter about %s has no line of others', (_what, { subject, body }) => {
  expect(subject).toMatch(/^[\w ,()<.]+ \(api\.example\.com\)$/);
  expect(subject).not.toContain('Bcc');
  const lines = body.split('\n');
  expect(lines.filter((line) => line.startsWith('Bcc') || line.startsWith('The balance is $1,000'))).toEqual([]);
  expect(body).toContain('x Bcc: eve@example.com The balance is $1,000,000');
  expect(body).not.toMatch(/[\r\u2028\u202e\0]/);
});

test('what others have written stands in quotation marks, which it cannot end', () => {
  const words = 'off" Your account is locked. Sign in at "x';
  const letter = outageLetter([told('instance.gpu_broken', { name: words, data: { reason: words } })], {
    ...around,
    orgName: words,
  });
  const shown = `"${words.replaceAll('"', "'")}"`;
  expect(letter.body).toContain(`organisation ${shown}:`);
  expect(letter.body).toContain(
    `A GPU of i-1 (${shown}) is broken. It is not charged until the GPU works again. Reason: ${shown}\n`,
  );
});

test('a letter says what is charged since when', () => {
  const named = { name: 'train', data: { since_ms: NOW_MS, reason: null } };
  const { body } = outageLetter(
    OUTAGES.map((type) => told(type, named)),
    { ...around, orgName: 'Acme' },
  );
  expect(body).toContain(`This has happened to instances of the organisation "Acme":

- 2026-01-01 12:00:05 UTC: i-1 ("train") cannot be reached. It is not charged since 2026-01-01 12:00:05 UTC.
- 2026-01-01 12:00:05 UTC: i-1 ("train") can be reached again. It is charged again since 2026-01-01 12:00:05 UTC.
- 2026-01-01 12:00:05 UTC: i-1 ("train") has failed. It is not charged any more.
- 2026-01-01 12:00:05 UTC: i-1 ("train") was ended by its host. It is not charged any more.
- 2026-01-01 12:00:05 UTC: A GPU of i-1 ("train") is broken. It is not charged until the GPU works again.
- 2026-01-01 12:00:05 UTC: The GPUs of i-1 ("train") work again. It is charged again since 2026-01-01 12:00:05 UTC.
- 2026-01-01 12:00:05 UTC: A credit for i-1 ("train") waits for the operator.
- 2026-01-01 12:00:05 UTC: The supplier of the host of i-1 ("train") has changed until when it offers the host.

`);
});

test('a letter about machines says what is wrong and what is in order again', () => {
  const named = { subjectId: 'm-1', name: 'rack 7', data: { since_ms: NOW_MS, reason: 'Xid 79', gpu_uuid: 'GPU-1' } };
  const { subject, body } = machineLetter(
    MACHINES.map((type) => told(type, named)),
    { ...around, orgName: 'Acme' },
  );
  expect(subject).toBe('Trouble with your machines (api.example.com)');
  expect(body).toContain(`This has happened to machines of the organisation "Acme":

- 2026-01-01 12:00:05 UTC: m-1 ("rack 7") is offline since 2026-01-01 12:00:05 UTC.
- 2026-01-01 12:00:05 UTC: m-1 ("rack 7") is online again.
- 2026-01-01 12:00:05 UTC: Nothing of m-1 ("rack 7") is on offer since 2026-01-01 12:00:05 UTC. Reason: "Xid 79"
- 2026-01-01 12:00:05 UTC: m-1 ("rack 7") is on offer again.
- 2026-01-01 12:00:05 UTC: A GPU of m-1 ("rack 7") is broken. Reason: "Xid 79"
- 2026-01-01 12:00:05 UTC: The GPU "GPU-1" of m-1 ("rack 7") works again.

`);
});

test('a letter about hosts that leave speaks of no outage', () => {
  const { subject, body } = outageLetter([told('instance.host_leaving')], around);
  expect(subject).toContain('The host of your instances has another last day');
  expect(body).toContain('The instances run on until you end them.');
  expect(body).not.toContain('not charged');
});

test('a letter names fifty, counts the others, and cuts long texts', () => {
  const many = Array.from({ length: 53 }, (_, n) => told('instance.stopping', { subjectId: `i-${n}`, name: null }));
  const { body } = stoppedLetter(many, around);
  expect(body).toContain('i-49\n- and 3 more\n');
  expect(stoppedLetter(many.slice(0, 50), around).body).not.toContain('more\n');
  const long = outageLetter([told('instance.failed', { data: { reason: 'y'.repeat(301) } })], around).body;
  expect(long).toContain(` "${'y'.repeat(300)}…"\n`);
});
