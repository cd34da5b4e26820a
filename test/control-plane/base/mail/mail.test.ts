// Mails over SMTP: a server that takes them, one that refuses, one that is gone, and one without TLS.
import { afterEach, beforeEach, expect, test } from 'vitest';
import { openMail, type MailSettings } from '../../../../control-plane/base/mail/mail.ts';
import { createLog } from '../../../../shared/log.ts';
import { startSmtpServer, type SmtpServer } from '../../../kit/smtp-server.ts';

let server: SmtpServer;
let logged: string;
beforeEach(async () => {
  server = await startSmtpServer();
  logged = '';
});
afterEach(() => server.close());

const log = createLog('test', 'info', { write: (line) => void (logged += line) });
const settings = (more: Partial<MailSettings> = {}): MailSettings => ({
  host: '127.0.0.1',
  port: server.port,
  security: 'none',
  login: undefined,
  from: 'svc@example.com',
  ...more,
});
const MAIL = { to: 'ada@example.com', subject: 'Hello', text: 'a line\nhttps://x/#y', about: 'inv_1' };

test('a mail is sent as it is given', async () => {
  expect(await openMail(settings(), log).send(MAIL)).toBe(true);
  expect(server.mails).toEqual([
    {
      from: expect.stringContaining('<svc@example.com>'),
      to: expect.stringContaining('<ada@example.com>'),
      text: expect.stringMatching(/Subject: Hello\n[^]*a line\nhttps:\/\/x\/#y/),
    },
  ]);
  expect(logged).toBe('');
});

test('a mail that is refused, or a server that is gone, is logged with what it was about', async () => {
  server.refuse(true);
  expect(await openMail(settings(), log).send(MAIL)).toBe(false);
  expect(logged).toContain('"about":"inv_1"');
  expect(logged).toContain('550 no such person');
  expect(logged).not.toContain('https://x/#y');
  logged = '';
  await server.close();
  expect(await openMail(settings(), log).send(MAIL)).toBe(false);
  expect(logged).toContain('ECONNREFUSED');
});

test('nothing is sent without TLS unless the operator says so, least of all a password', async () => {
  const login = { user: 'svc', password: 'the-password' };
  expect(await openMail(settings({ security: 'starttls', login }), log).send(MAIL)).toBe(false);
  expect(server.mails).toEqual([]);
  expect(logged).toContain('was not sent');
  expect(logged).not.toContain('the-password');
});

test('without a mail server nothing is sent, and that is no fault', async () => {
  expect(await openMail(undefined, log).send(MAIL)).toBe(false);
  expect(logged).toBe('');
});
