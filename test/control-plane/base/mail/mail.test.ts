// Mails over SMTP: a server that takes them, one that refuses, one that is gone, and one without TLS.
import { afterEach, beforeEach, expect, test } from 'vitest';
import { openMail, type MailSettings } from '../../../../control-plane/base/mail/mail.ts';
import { MAILS_AT_ONCE_MAX } from '../../../../shared/limits.ts';
import { createLog } from '../../../../shared/log.ts';
import { startSmtpServer, type SmtpServer } from '../../../kit/smtp-server.ts';
import { virtualClock } from '../../../kit/virtual-clock.ts';

let server: SmtpServer;
let logged: string;
beforeEach(async () => {
  server = await startSmtpServer();
  logged = '';
});
afterEach(() => server.close());

const clock = virtualClock();
const outside = { clock, log: createLog('test', 'info', { write: (line) => void (logged += line) }) };
const settings = (more: Partial<MailSettings> = {}): MailSettings => ({
  host: '127.0.0.1',
  port: server.port,
  security: 'none',
  login: undefined,
  from: { name: '', address: 'svc@example.com' },
  ...more,
});
const MAIL = { to: 'ada@example.com', subject: 'Hello', text: 'a line\nhttps://x/#y', about: 'inv_1' };

test('a mail is sent as it is given', async () => {
  expect(await openMail(settings(), outside).send(MAIL)).toBe(true);
  expect(server.mails).toEqual([
    {
      from: expect.stringContaining('<svc@example.com>'),
      to: expect.stringContaining('<ada@example.com>'),
      text: expect.stringMatching(/Subject: Hello\n[^]*a line\nhttps:\/\/x\/#y/),
    },
  ]);
  expect(logged).toBe('');
});

test('a mail shows the name of its sender, however it is written, and asks for no automatic answer', async () => {
  const from = { name: 'Müller, "GPUs"', address: 'svc@example.com' };
  expect(await openMail(settings({ from }), outside).send(MAIL)).toBe(true);
  expect(server.mails[0]?.from).toContain('<svc@example.com>');
  expect(server.mails[0]?.text).toMatch(/^From: =\?UTF-8\?Q\?M=C3=BCller=2C_=22GPUs=22\?= <svc@example.com>$/m);
  expect(server.mails[0]?.text).toMatch(/^Auto-Submitted: auto-generated$/m);
});

test('a mail that is refused, or a server that is gone, is logged with what it was about', async () => {
  server.refuse(true);
  expect(await openMail(settings(), outside).send(MAIL)).toBe(false);
  expect(logged).toContain('"about":"inv_1"');
  expect(logged).toContain('550 no such person: <an address>');
  expect(logged).not.toContain('ada@example.com');
  expect(logged).not.toContain('https://x/#y');
  logged = '';
  await server.close();
  expect(await openMail(settings(), outside).send(MAIL)).toBe(false);
  expect(logged).toContain('ECONNREFUSED');
});

test('nothing is sent without TLS unless the operator says so, least of all a password', async () => {
  const login = { user: 'svc', password: 'the-password' };
  expect(await openMail(settings({ security: 'starttls', login }), outside).send(MAIL)).toBe(false);
  expect(server.mails).toEqual([]);
  expect(logged).toContain('was not sent');
  expect(logged).not.toContain('the-password');
});

test('a few mails are sent at once, and the others wait for ten seconds', async () => {
  const { send } = openMail(settings(), outside);
  const release = server.hold();
  const sent = Array.from({ length: MAILS_AT_ONCE_MAX }, () => send(MAIL));
  const late = [send(MAIL), send(MAIL)];
  await expect.poll(() => server.most()).toBe(MAILS_AT_ONCE_MAX);
  await clock.advance(9_999);
  expect(logged).toBe('');
  await clock.advance(1);
  expect(await Promise.all(late)).toEqual([false, false]);
  expect(logged).toContain('other mails are being sent');
  const waiting = send({ ...MAIL, to: 'last@example.com' });
  release();
  expect(await Promise.all(sent)).toEqual(sent.map(() => true));
  expect(await waiting).toBe(true);
  expect([server.mails.length, server.mails.at(-1)?.to]).toEqual([MAILS_AT_ONCE_MAX + 1, 'RCPT TO:<last@example.com>']);
});

test('a mail that a server takes too long for is given up after a minute, and its slot is free', async () => {
  const { send } = openMail(settings(), outside);
  server.hold();
  const sent = Array.from({ length: MAILS_AT_ONCE_MAX }, () => send(MAIL));
  await expect.poll(() => server.mails.length).toBe(MAILS_AT_ONCE_MAX);
  await clock.advance(59_999);
  expect(logged).toBe('');
  await clock.advance(1);
  expect(await Promise.all(sent)).toEqual(sent.map(() => false));
  expect(logged).toContain('"reason":"the server took longer than 60 s"');
});

test('without a mail server nothing is sent, and that is no fault', async () => {
  const none = openMail(undefined, outside);
  expect([none.isConfigured, await none.send(MAIL)]).toEqual([false, false]);
  expect(logged).toBe('');
});
