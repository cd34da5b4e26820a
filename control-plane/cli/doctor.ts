// `svc doctor`: checks the way from this machine to the API, and prints what to do about each fault.
import { lookup } from 'node:dns/promises';
import type { Command } from 'commander';
import { z } from 'zod';
import { messageOf } from '../../shared/errors.ts';
import { assertAccepted } from './auth.ts';
import { addressOf, type CommonOptions, signedIn, type SvcDeps, withCommon } from './command.ts';
import { EXIT, interruption, SvcError } from './exit.ts';

interface Finding {
  check: string;
  ok: boolean;
  detail: string;
  /** What the person can do if `ok` is false. */
  next: string;
}

const Balance = z.looseObject({ available: z.string() });

const SKEW_MS_MAX = 30_000;
const STREAM_MS_MAX = 10_000;

export function addDoctorCommand(program: Command, deps: SvcDeps): void {
  withCommon(program.command('doctor'))
    .description('check the way to the API, the key, the clock and the programs that are needed')
    .action(async (options: CommonOptions) => {
      const findings: Finding[] = [];
      for (const check of CHECKS) {
        findings.push(await check(options, deps));
        if (deps.interrupted.aborted) throw interruption();
      }
      if (options.json === true) deps.print(`${JSON.stringify({ checks: findings })}\n`);
      else deps.print(findings.map(lineOf).join(''));
      const failed = findings.filter(({ ok }) => !ok);
      if (failed.length > 0)
        throw new SvcError(EXIT.failed, {
          code: 'checks_failed',
          message: `${failed.length} of ${findings.length} checks failed`,
        });
    });
}

type Check = (options: CommonOptions, deps: SvcDeps) => Promise<Finding>;

const CHECKS: readonly Check[] = [
  (options, deps) =>
    checked('name', 'Check your DNS, or the address: --base-url', async () => {
      const { hostname } = new URL(addressOf(deps, options));
      const { address } = await lookup(hostname.replaceAll(/[[\]]/g, ''));
      return `${hostname} is ${address}`;
    }),
  (options, deps) =>
    checked('api', 'Check the address, your proxy and your certificates.', async () => {
      const address = addressOf(deps, options);
      const { status } = await looked(address, deps);
      if (status !== 200) throw new Error(`${address} answered ${status}`);
      return `${address} answers`;
    }),
  (options, deps) =>
    checked('clock', 'Set the clock of this machine.', async () => {
      const { headers } = await looked(addressOf(deps, options), deps);
      const skewMs = Math.abs(Date.parse(headers.get('date') ?? '') - deps.clock.now());
      if (!(skewMs <= SKEW_MS_MAX)) throw new Error(`the clock is ${Math.round(skewMs / 1000)} s off`);
      return 'agrees with the API';
    }),
  (options, deps) =>
    checked('key', 'Sign in: svc auth login', async () => {
      signedIn(deps, options);
      const login = deps.logins.find(options.profile ?? 'default');
      await assertAccepted(login?.api_key ?? '', addressOf(deps, options), deps);
      return `accepted (${login?.source ?? ''})`;
    }),
  (options, deps) =>
    checked('balance', 'Add funds, or use a key with the scope billing: read.', async () => {
      const { available } = Balance.parse(await signedIn(deps, options).json({ method: 'GET', path: '/balance' }));
      return `$${available} available`;
    }),
  (options, deps) =>
    checked('stream', 'A proxy on the way holds streams back. Waiting falls back to asking again.', () =>
      firstBytes(options, deps),
    ),
  (_options, deps) =>
    checked('ssh', 'Install the OpenSSH client.', async () => {
      if ((await deps.runProgram('ssh', ['-V'], { quiet: true })) !== 0) throw new Error('ssh does not work');
      return 'the OpenSSH client is installed';
    }),
];

async function checked(check: string, next: string, work: () => Promise<string>): Promise<Finding> {
  try {
    return { check, ok: true, detail: await work(), next: '' };
  } catch (error) {
    return {
      check,
      ok: false,
      detail: messageOf(error),
      next: error instanceof SvcError ? (error.refusal.next ?? next) : next,
    };
  }
}

/** A request that needs no key. */
async function looked(address: string, deps: SvcDeps): Promise<Response> {
  const response = await deps.fetch(`${address}/gpu-types?limit=1`, { signal: deps.interrupted });
  // Until the body is read, its connection stays in use.
  await response.arrayBuffer();
  return response;
}

async function firstBytes(options: CommonOptions, deps: SvcDeps): Promise<string> {
  const late = AbortSignal.timeout(STREAM_MS_MAX);
  const headers = { accept: 'text/event-stream' };
  const response = await signedIn(deps, options).open({
    method: 'GET',
    path: '/events',
    headers,
    signal: AbortSignal.any([late, deps.interrupted]),
  });
  const reader = response.body?.getReader();
  const { done } = (await reader?.read()) ?? { done: true };
  await reader?.cancel();
  if (done) throw new Error('the stream of events ended at once');
  return 'events arrive';
}

function lineOf({ check, ok, detail, next }: Finding): string {
  return `${ok ? 'ok  ' : 'FAIL'}  ${check.padEnd(8)}  ${detail}\n${ok ? '' : `                ${next}\n`}`;
}
