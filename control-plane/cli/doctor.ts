// `svc doctor`: checks the way from this machine to the API, and prints what to do about each fault.
import { lookup } from 'node:dns/promises';
import type { Command } from 'commander';
import { z } from 'zod';
import { messageOf } from '../../shared/errors.ts';
import { printable } from '../../shared/terminal.ts';
import { assertAccepted } from './auth.ts';
import { UNREACHABLE, unreachedWords } from './client.ts';
import { addressOf, type CommonOptions, signedIn, type SvcDeps, withCommon } from './command.ts';
import { EXIT, interruption, SvcError } from './exit.ts';

interface Finding {
  check: string;
  /** Null if it was not checked. */
  ok: boolean | null;
  detail: string;
  /** What the person can do if `ok` is false. */
  next: string;
}

interface Check {
  name: string;
  /** The check without which this one could only fail for the same reason. */
  needs?: string;
  /** What the person can do if it fails, unless the error says better. */
  next: string;
  /** The same if the API refuses it for good, so that the way to the API is not at fault. */
  refused?: string;
  /** What was found. @throws Error if that is not right */
  look(options: CommonOptions, deps: SvcDeps): Promise<string>;
}

const Organisation = z.looseObject({ suspended_at: z.string().nullable(), suspended_reason: z.string().nullable() });
const Balance = z.looseObject({ available: z.string() });

const SKEW_MS_MAX = 30_000;
/** People call this command when something hangs. */
const CHECK_MS_MAX = 10_000;

export function addDoctorCommand(program: Command, deps: SvcDeps): void {
  withCommon(program.command('doctor'))
    .description('check the way to the API, the key, the clock and the programs that are needed')
    .action(async (options: CommonOptions) => {
      // The exit code is that of all checks, also if nobody reads their lines any more.
      deps.goOnUnread();
      const findings: Finding[] = [];
      for (const check of CHECKS) {
        const canLook = check.needs === undefined || findings.some(({ check: name, ok }) => name === check.needs && ok);
        const finding = canLook ? await findingOf(check, options, deps) : unchecked(check);
        if (deps.interrupted.aborted) throw interruption();
        findings.push(finding);
        if (options.json !== true) deps.print(lineOf(finding));
      }
      if (options.json === true) deps.print(`${JSON.stringify({ checks: findings })}\n`);
      const failed = findings.filter(({ ok }) => ok === false);
      if (failed.length > 0)
        throw new SvcError(EXIT.failed, {
          code: 'checks_failed',
          message: `${failed.length} of ${findings.length} checks failed`,
        });
    });
}

const CHECK_ADDRESS = 'Check the address, your proxy and your certificates.';

const CHECKS: readonly Check[] = [
  {
    name: 'name',
    next: 'Check your DNS, or the address: --base-url',
    look: async (options, deps) => {
      const { hostname } = new URL(addressOf(deps, options));
      const { address } = await lookup(hostname.replaceAll(/[[\]]/g, ''));
      return `${hostname} is ${address}`;
    },
  },
  {
    name: 'api',
    next: CHECK_ADDRESS,
    look: async (options, deps) => {
      const address = addressOf(deps, options);
      const { status } = await looked(address, deps);
      if (status !== 200) throw new Error(`${address} answered ${status}`);
      return `${address} answers`;
    },
  },
  {
    name: 'clock',
    needs: 'api',
    next: 'Set the clock of this machine.',
    look: async (options, deps) => {
      const { headers } = await looked(addressOf(deps, options), deps);
      const skewMs = Math.abs(Date.parse(headers.get('date') ?? '') - deps.clock.now());
      if (!(skewMs <= SKEW_MS_MAX)) throw new Error(`the clock is ${Math.round(skewMs / 1000)} s off`);
      return 'agrees with the API';
    },
  },
  {
    name: 'key',
    needs: 'api',
    next: 'Sign in: svc auth login',
    look: async (options, deps) => {
      signedIn(deps, options);
      const login = deps.logins.find(options.profile ?? 'default');
      await assertAccepted(login?.api_key ?? '', addressOf(deps, options), deps);
      return `accepted (${login?.source ?? ''})`;
    },
  },
  {
    name: 'account',
    needs: 'key',
    next: 'Use a key with the scope events: read.',
    look: standing,
  },
  {
    name: 'balance',
    needs: 'key',
    next: 'Add funds, or use a key with the scope billing: read.',
    look: async (options, deps) => {
      const { available } = Balance.parse(await signedIn(deps, options).json({ method: 'GET', path: '/balance' }));
      return `$${available.replace(/(\.\d\d)\d+$/, '$1')} available`;
    },
  },
  {
    name: 'stream',
    needs: 'key',
    next: 'A proxy on the way holds streams back. Waiting falls back to asking again.',
    refused: 'Waiting falls back to asking again.',
    look: (options, deps) => firstBytes(options, deps),
  },
  {
    name: 'ssh',
    next: 'Install the OpenSSH client.',
    look: async (_options, deps) => {
      if ((await deps.runProgram('ssh', ['-V'], { quiet: true })) !== 0) throw new Error('ssh does not work');
      return 'the OpenSSH client is installed';
    },
  },
];

/** Ends in time, whatever the check waits for. */
async function findingOf(
  { name: check, look, ...steps }: Check,
  options: CommonOptions,
  deps: SvcDeps,
): Promise<Finding> {
  const late = new AbortController();
  const cancel = deps.clock.after(CHECK_MS_MAX, () => late.abort());
  const interrupted = AbortSignal.any([deps.interrupted, late.signal]);
  try {
    // Neither the look-up of a name nor a program ends with the signal.
    const detail = await Promise.race([look(options, { ...deps, interrupted, tries: 1 }), endOf(interrupted)]);
    return { check, ok: true, detail, next: '' };
  } catch (error) {
    return {
      check,
      ok: false,
      detail: late.signal.aborted ? `no answer after ${CHECK_MS_MAX / 1_000} s` : messageOf(error),
      next: nextAfter(error, steps),
    };
  } finally {
    cancel();
  }
}

function unchecked({ name: check, needs }: Check): Finding {
  return { check, ok: null, detail: `not checked: it needs ${needs}`, next: '' };
}

function nextAfter(error: unknown, { next, refused = next }: Pick<Check, 'next' | 'refused'>): string {
  const { code, next: better, isFinal } = error instanceof SvcError ? error.refusal : {};
  // The error itself advises this command.
  if (code === UNREACHABLE) return CHECK_ADDRESS;
  return better ?? (isFinal === true ? refused : next);
}

/** Rejects when the signal aborts. */
function endOf(signal: AbortSignal): Promise<never> {
  return new Promise((_resolve, reject) => signal.addEventListener('abort', () => reject(interruption())));
}

/** A request that needs no key. */
async function looked(address: string, deps: SvcDeps): Promise<Response> {
  const response = await deps
    .fetch(`${address}/gpu-types?limit=1`, { signal: deps.interrupted })
    .catch((error: unknown) => {
      throw new Error(unreachedWords(error, address));
    });
  // Until the body is read or cancelled, its connection stays in use.
  await response.body?.cancel();
  return response;
}

/** @throws SvcError that says since when and why the organisation is suspended */
async function standing(options: CommonOptions, deps: SvcDeps): Promise<string> {
  const asked = signedIn(deps, options).json({ method: 'GET', path: '/organisation' });
  const found = await asked.catch((error: unknown) => {
    if (error instanceof SvcError && error.exit === EXIT.notFound) return undefined;
    throw error;
  });
  if (found === undefined) return 'this API does not say whether it is suspended';
  const { suspended_at: since, suspended_reason: reason } = Organisation.parse(found);
  if (since === null) return 'not suspended';
  throw new SvcError(EXIT.failed, {
    code: 'org_suspended',
    message: `suspended by the operator since ${since}: ${reason ?? 'without a reason'}`,
    next: 'Until the operator resumes it, nothing that costs money can start. Ask the operator.',
  });
}

async function firstBytes(options: CommonOptions, deps: SvcDeps): Promise<string> {
  const headers = { accept: 'text/event-stream' };
  const response = await signedIn(deps, options).open({ method: 'GET', path: '/events', headers });
  const reader = response.body?.getReader();
  const { done } = (await reader?.read()) ?? { done: true };
  await reader?.cancel();
  if (done) throw new Error('the stream of events ended at once');
  return 'events arrive';
}

function lineOf({ check, ok, detail, next }: Finding): string {
  const first = `${verdictOf(ok)}  ${check.padEnd(8)}  ${printable(detail)}\n`;
  return next === '' ? first : `${first}                ${printable(next)}\n`;
}

function verdictOf(ok: Finding['ok']): string {
  if (ok === null) return 'skip';
  return ok ? 'ok  ' : 'FAIL';
}
