// `svc auth`: sign in with a browser (RFC 8628) or with a key, see who is signed in, sign out.
import type { Command } from 'commander';
import { z } from 'zod';
import { clearTextHost } from '../../shared/client-network.ts';
import { isoTime } from '../../shared/clock.ts';
import { printable } from '../../shared/terminal.ts';
import { openClient } from './client.ts';
import { addressOf, asStranger, type CommonOptions, signedIn, type SvcDeps, withCommon } from './command.ts';
import { EXIT, SvcError } from './exit.ts';

/**
 * The scopes that the commands of this program need, and those that read what the console shows with `svc api`. `svc auth login` asks for them. A key
 * that makes API keys has to be asked for by name, because whoever steals it keeps the keys that it has made.
 */
const SCOPES = [
  'instances: read',
  'instances: write',
  'ssh_keys: read',
  'ssh_keys: write',
  'registry_credentials: read',
  'registry_credentials: write',
  'billing: read',
  'events: read',
  'deposits: read',
  'deposits: write',
  'webhooks: read',
  'webhooks: write',
  'files: read',
  'files: write',
  'finetuning: read',
  'finetuning: write',
  'supply: read',
  'supply: write',
  'serverless:read',
  'serverless:write',
  'api_keys: read',
  'members: read',
];

interface LoginOptions extends CommonOptions {
  withToken?: boolean;
  scopes?: string;
  allowHttp?: boolean;
}

/** A text that is shown. Before the login nobody knows whose server this is, so it must not begin a line of its own. */
const Shown = z.string().transform(printable);

const Codes = z.looseObject({
  device_code: z.string(),
  user_code: Shown,
  verification_uri: Shown,
  expires_in: z.number(),
  interval: z.number(),
});
const Granted = z.looseObject({
  access_token: z.string(),
  api_key: z.looseObject({ id: Shown, scopes: z.array(Shown), expires_at: Shown.nullable() }),
});

export function addAuthCommands(auth: Command, deps: SvcDeps): void {
  withCommon(auth.command('login'))
    .description('sign in; you approve this machine in a browser')
    .option('--with-token', 'read an API key from standard input instead')
    .option('--scopes <scopes>', 'what the key may do, separated by commas')
    .option('--allow-http', 'accept an http:// address, on a network that nobody else reads')
    .action((options: LoginOptions) => login(options, deps));
  withCommon(auth.command('logout'))
    .description('forget the key of this machine; revoke it in the console')
    .action((options: CommonOptions) => {
      const profile = options.profile ?? 'default';
      deps.tell(
        deps.logins.remove(profile) ? `The key of the profile ${profile} is forgotten.\n` : 'Nobody was signed in.\n',
      );
    });
  withCommon(auth.command('status'))
    .description('where the key is, until when it lives, and whether the API accepts it')
    .action((options: CommonOptions) => status(options, deps));
  withCommon(auth.command('token'))
    .description('print the key, for other programs')
    .action((options: CommonOptions) => {
      signedIn(deps, options);
      deps.print(`${deps.logins.find(options.profile ?? 'default')?.api_key ?? ''}\n`);
    });
}

async function login(options: LoginOptions, deps: SvcDeps): Promise<void> {
  const baseUrl = addressOf(deps, options);
  if (options.allowHttp !== true) assertNotOpen(baseUrl);
  const profile = options.profile ?? 'default';
  if (options.withToken === true) {
    const apiKey = (await deps.readInput()).trim();
    await assertAccepted(apiKey, baseUrl, deps);
    const file = deps.logins.save(profile, { base_url: baseUrl, api_key: apiKey, expires_at: null });
    return deps.tell(`Signed in. The key is in ${file}, which only you can read.\n`);
  }
  const client = asStranger(deps, options);
  const scopes = options.scopes?.split(',').map((scope) => scope.trim()) ?? SCOPES;
  const begun = { host: deps.logins.host, scopes };
  const codes = Codes.parse(await client.json({ method: 'POST', path: '/auth/device', body: begun }));
  deps.tell(`Open ${codes.verification_uri} and enter the code ${codes.user_code}\n`);
  const granted = await askUntilGranted(codes, options, deps);
  const { id, scopes: given, expires_at: expiresAt } = granted.api_key;
  const file = deps.logins.save(profile, { base_url: baseUrl, api_key: granted.access_token, expires_at: expiresAt });
  deps.tell(
    `Signed in with the key ${id}, until ${expiresAt ?? 'it is revoked'}. It is in ${file}, which only you can read.\n`,
  );
  if (given.join() !== scopes.join())
    deps.tell(`Your role allows less than was asked for. The key may do: ${given.join(', ')}\n`);
}

/** @throws SvcError if the key would cross a network in clear text */
function assertNotOpen(baseUrl: string): void {
  const host = clearTextHost(new URL(baseUrl));
  if (host === undefined) return;
  throw new SvcError(EXIT.usage, {
    code: 'plain_http',
    message: `http:// would carry your key, and all that you send later, in clear text to ${host}`,
    next: 'Use https://, or --allow-http on a network that nobody else reads.',
  });
}

async function askUntilGranted(
  { device_code, interval, expires_in: expiresIn }: z.infer<typeof Codes>,
  options: CommonOptions,
  deps: SvcDeps,
): Promise<z.infer<typeof Granted>> {
  const { clock, interrupted } = deps;
  const client = asStranger(deps, options);
  const untilMs = clock.monotonicMs() + expiresIn * 1_000;
  for (let waitMs = interval * 1_000; clock.monotonicMs() < untilMs;) {
    await clock.sleep(waitMs, interrupted);
    if (interrupted.aborted) break;
    // The API returns the key only once, so the login fails if the answer is lost.
    const request = {
      method: 'POST',
      path: '/auth/device/token',
      body: { device_code },
      isOnce: true,
    };
    try {
      return Granted.parse(await client.json(request));
    } catch (error) {
      const code = error instanceof SvcError ? error.refusal.code : '';
      if (code === 'slow_down') waitMs += 5_000;
      else if (code !== 'authorization_pending') throw error;
    }
  }
  const message = interrupted.aborted ? 'interrupted' : 'nobody approved this machine in time';
  const [exit, code] = interrupted.aborted ? [EXIT.interrupted, 'interrupted'] : [EXIT.signIn, 'expired_token'];
  throw new SvcError(exit, { code, message, next: 'Begin again: svc auth login' });
}

async function status(options: CommonOptions, deps: SvcDeps): Promise<void> {
  const { logins } = deps;
  signedIn(deps, options);
  const found = logins.find(options.profile ?? 'default');
  if (found === undefined) return;
  const address = addressOf(deps, options);
  await assertAccepted(found.api_key, address, deps);
  const shown = {
    base_url: address,
    source: found.source,
    expires_at: found.expires_at,
    checked_at: isoTime(deps.clock.now()),
  };
  if (options.json === true) return deps.print(`${JSON.stringify(shown)}\n`);
  deps.print(
    `The API at ${shown.base_url} accepts the key of ${shown.source}.\n${
      shown.expires_at === null ? 'Its end is not known here.' : `It ends at ${shown.expires_at}.`
    }\n`,
  );
}

/** Checks the key with a request. `insufficient_scope` means that the API knows the key, so it is no failure. @throws SvcError with `signIn` */
export async function assertAccepted(
  key: string,
  baseUrl: string,
  { fetch, clock, ids, interrupted, tries }: SvcDeps,
): Promise<void> {
  const client = openClient({ baseUrl, key, fetch, clock, ids, interrupted, tries });
  await client.json({ method: 'GET', path: '/events?limit=1' }).catch((error: unknown) => {
    if (!(error instanceof SvcError) || error.refusal.code !== 'insufficient_scope') throw error;
  });
}
