// Sends mails over SMTP, and reads the settings of the server. The server is the operator's, so its address may be private.
import type { Clock } from '../../../shared/clock.ts';
import { label } from '../../../shared/api/label.ts';
import { messageOf } from '../../../shared/errors.ts';
import { MAILS_AT_ONCE_MAX } from '../../../shared/limits.ts';
import type { Log } from '../../../shared/log.ts';
import { openSemaphore } from '../../../shared/semaphore.ts';
import { z } from 'zod';

/** Asks mail programs to send no automatic answer, such as a note of absence (RFC 3834). */
const NO_ANSWER = { 'Auto-Submitted': 'auto-generated' };
const STEP_MS_MAX = 10_000;
/** A server that sends a byte now and then lets no step end. Few of those would take all slots, and no mail would be sent any more. */
const MAIL_MS_MAX = 60_000;

export interface MailSettings {
  host: string;
  port: number;
  /** `tls`: from the first byte. `starttls`: required before anything is sent. `none`: for a server on this machine. */
  security: 'tls' | 'starttls' | 'none';
  login: { user: string; password: string } | undefined;
  /** The sender; its name is empty if it has none. */
  from: { name: string; address: string };
}

export interface Mail {
  /** False: nothing is ever sent. */
  isConfigured: boolean;
  /**
   * A few mails are sent at once, and the others wait for some seconds. False if there is no mail server, if the server has refused the
   * mail, or if too many others were before it. The log has the reason, and no address. `about` is the id of the subject of the mail, for the log.
   */
  send(mail: { to: string; subject: string; text: string; about: string }): Promise<boolean>;
}

export function openMail(settings: MailSettings | undefined, { log, clock }: { log: Log; clock: Clock }): Mail {
  if (settings === undefined) return { isConfigured: false, send: async () => false };
  const { host } = settings;
  const connections = openSemaphore(clock, MAILS_AT_ONCE_MAX);
  const refuse = (about: string, reason: string): false => {
    log.warn({ about, smtp_host: host, reason: withoutAddresses(reason) }, 'a mail was not sent');
    return false;
  };
  return {
    isConfigured: true,
    send: async ({ about, ...mail }) => {
      try {
        const isSent = await connections.run(host, STEP_MS_MAX, () => sendOne(mail, settings, clock));
        return isSent ?? refuse(about, 'other mails are being sent');
      } catch (error) {
        return refuse(about, messageOf(error));
      }
    },
  };
}

/** The settings of the mail server in the configuration. */
export const Smtp = z
  .strictObject({
    host: z.string().min(1),
    port: z.int().min(1).max(65_535).default(587),
    /** `starttls` and `tls` refuse a server without it. `none` is for a server on this machine. */
    security: z.enum(['starttls', 'tls', 'none']).default('starttls'),
    username: z.string().min(1).optional(),
    password_file: z.string().startsWith('/', 'must be an absolute path').optional(),
    /** The sender of the mails. */
    from: z.email('must be an e-mail address'),
    /** The name that mail programs show instead of the address. */
    from_name: label(64).optional(),
  })
  .refine(({ username, password_file: file }) => (username === undefined) === (file === undefined), {
    path: ['password_file'],
    message: 'must be set with username, and only then',
  })
  .refine(({ username, security }) => username === undefined || security !== 'none', {
    path: ['security'],
    message: 'must not be none where a password is sent',
  });

/** Undefined if there is no mail server. `read` reads a file of a setting. */
export function mailSettings(
  smtp: z.infer<typeof Smtp> | undefined,
  read: (setting: string, file: string) => string,
): MailSettings | undefined {
  if (smtp === undefined) return undefined;
  const { host, port, security, from: address, from_name: name = '', username: user, password_file: file } = smtp;
  const password = file === undefined ? undefined : read('smtp.password_file', file).trim();
  const login = user === undefined || password === undefined ? undefined : { user, password };
  return { host, port, security, login, from: { name, address } };
}

/** A server that refuses a person repeats the address. */
function withoutAddresses(reason: string): string {
  return reason
    .split(/([\s<>])/)
    .map((word) => (word.includes('@') ? 'an address' : word))
    .join('');
}

/** A connection for one mail. */
async function sendOne(
  mail: { to: string; subject: string; text: string },
  { host, port, security, login, from }: MailSettings,
  clock: Clock,
): Promise<true> {
  // Loaded when the first mail is sent: most installations send none.
  const { createTransport } = await import('nodemailer');
  const transport = createTransport({
    host,
    port,
    secure: security === 'tls',
    requireTLS: security === 'starttls',
    ignoreTLS: security === 'none',
    connectionTimeout: STEP_MS_MAX,
    greetingTimeout: STEP_MS_MAX,
    socketTimeout: STEP_MS_MAX,
    disableFileAccess: true,
    disableUrlAccess: true,
    ...(login === undefined ? {} : { auth: { user: login.user, pass: login.password } }),
  });
  const late = new AbortController();
  const cancel = clock.after(MAIL_MS_MAX, () =>
    late.abort(new Error(`the server took longer than ${MAIL_MS_MAX / 1000} s`)),
  );
  try {
    await transport.sendMail({ ...mail, from, headers: NO_ANSWER, signal: late.signal });
    return true;
  } catch (error) {
    late.signal.throwIfAborted();
    throw error;
  } finally {
    cancel();
  }
}
