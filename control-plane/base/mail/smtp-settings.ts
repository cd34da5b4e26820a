// The part of the configuration about the mail server.
import { z } from 'zod';
import type { MailSettings } from './mail.ts';

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
  const { host, port, security, from, username: user, password_file: file } = smtp;
  const password = file === undefined ? undefined : read('smtp.password_file', file).trim();
  const login = user === undefined || password === undefined ? undefined : { user, password };
  return { host, port, security, login, from };
}
