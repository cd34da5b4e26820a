// Sends mails over SMTP. The server is the operator's, so its address may be private.
import { messageOf } from '../../../shared/errors.ts';
import type { Log } from '../../../shared/log.ts';

const STEP_MS_MAX = 10_000;

export interface MailSettings {
  host: string;
  port: number;
  /** `tls`: from the first byte. `starttls`: required before anything is sent. `none`: for a server on this machine. */
  security: 'tls' | 'starttls' | 'none';
  login: { user: string; password: string } | undefined;
  /** The address of the sender. */
  from: string;
}

export interface Mail {
  /**
   * False if there is no mail server, or if the server has refused the mail. The log has the reason. `about` is the id of the subject of
   * the mail, for the log.
   */
  send(mail: { to: string; subject: string; text: string; about: string }): Promise<boolean>;
}

export function openMail(settings: MailSettings | undefined, log: Log): Mail {
  if (settings === undefined) return { send: async () => false };
  const { host, port, security, login, from } = settings;
  return {
    send: async ({ about, ...mail }) => {
      try {
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
        await transport.sendMail({ ...mail, from });
        return true;
      } catch (error) {
        log.warn({ about, smtp_host: host, reason: messageOf(error) }, 'a mail was not sent');
        return false;
      }
    },
  };
}
