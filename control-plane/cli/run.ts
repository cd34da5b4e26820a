// `svc run`: launches, follows the output of the program, and ends with its code. The instance ends with its program, also without this command. It
// costs money until then, so every way out of here before that deletes it (`--rm`) or names it.
import type { Clock } from '../../shared/clock.ts';
import type { Client } from './client.ts';
import type { SvcDeps } from './command.ts';
import { EXIT, knownError, SvcError } from './exit.ts';
import { launch, type Operation, placed } from './launches.ts';
import { type Ending, followProgram, type Line } from './output.ts';
import { waitUntil } from './waiting.ts';

interface Run {
  /** The request of the launch. */
  body: Record<string, unknown>;
  /** How long the instance may take until it runs, in seconds. */
  timeout: number;
  /** `--rm`: the instance is deleted, however this command ends. */
  isRemoved: boolean;
  onLine(line: Line): void;
}

/** After an interruption, what is needed to delete the instance may take this time. Systems that shut down wait no longer for their programs. */
const REMOVAL_MS_MAX = 30_000;

/** @throws SvcError with the exit code of the program if that is not 0 */
export async function runToEnd(client: Client, run: Run, deps: SvcDeps): Promise<void> {
  // The instance is deleted or named at the end, also if nobody reads the output any more.
  deps.goOnUnread();
  const accepted = run.isRemoved
    ? await outlasting(deps, (signal) => launch(client, run.body, signal))
    : await launch(client, run.body);
  const found: { id?: string } = {};
  const ended = await follow(client, { accepted, found, ...run }, deps).catch((error: unknown) =>
    knownError(error, deps.interrupted),
  );
  const { id } = found;
  if (ended instanceof SvcError) throw await (run.isRemoved ? removed : named)(ended, { client, accepted, id }, deps);
  if (id === undefined) return;
  if (run.isRemoved) {
    await remove(client, id, deps).catch((error: unknown) => {
      throw knownError(error).about(id, stillCosts(id));
    });
  }
  if (ended.code === 0) return;
  throw new SvcError(ended.code, { code: 'program_failed', message: `the program ${ended.words}` });
}

interface Launched {
  client: Client;
  accepted: Operation;
  /** Undefined if the launch had no instance yet. */
  id: string | undefined;
}

const stillCosts = (id: string): string =>
  `The instance still exists, and costs money until its program ends. End it: svc instance delete ${id}`;

/** Stores the id of the instance in `found` as soon as it is known. */
async function follow(
  client: Client,
  { accepted, found, timeout, onLine }: Run & { accepted: Operation; found: { id?: string } },
  deps: SvcDeps,
): Promise<Ending> {
  const instanceId = await placed(client, accepted, { ...deps, timeoutMs: timeout * 1_000 });
  found.id = instanceId;
  deps.tell(`${instanceId}\n`);
  await waitUntil(client, { instanceId, until: 'begun', timeout }, deps);
  return followProgram(client, { instanceId, onLine }, deps);
}

/** The error of a run without `--rm`, with what still costs money. */
async function named(error: SvcError, { id }: Launched): Promise<SvcError> {
  return id === undefined || error.refusal.resourceId !== undefined ? error : error.about(id, stillCosts(id));
}

/** Deletes the instance of a run that did not come to its end. Resolves with the error, and what has become of the instance. */
async function removed(error: SvcError, { client, accepted, id: known }: Launched, deps: SvcDeps): Promise<SvcError> {
  // The launch itself has failed.
  if (known === undefined && error.exit === EXIT.operationFailed) return error;
  const id = known ?? (await lateId(client, accepted, deps));
  // The error names the launch.
  if (id === undefined) return error;
  deps.tell(`Deleting ${id}.\n`);
  try {
    await remove(client, id, deps);
  } catch (failure) {
    deps.tell(`${id} could not be deleted: ${knownError(failure).message}\n`);
    return error.about(id, stillCosts(id));
  }
  const { code, message, requestId } = error.refusal;
  const next = `The instance is deleted. See what happened to it: svc instance events ${id}`;
  return new SvcError(error.exit, { code, message, next, ...(requestId === undefined ? {} : { requestId }) });
}

/** The id of an instance that the launch had not made yet; undefined if it does not make one in time. */
async function lateId(client: Client, accepted: Operation, { clock, tell }: SvcDeps): Promise<string | undefined> {
  tell('Waiting for the instance of the launch, to delete it.\n');
  return limited(clock, (interrupted) =>
    placed(client, accepted, { clock, interrupted, timeoutMs: REMOVAL_MS_MAX }).catch(() => undefined),
  );
}

/** Ends the instance. It may have ended by itself. @throws SvcError */
async function remove(client: Client, id: string, { clock }: SvcDeps): Promise<void> {
  const request = { method: 'DELETE', path: `/instances/${id}` };
  try {
    await limited(clock, (signal) => client.json({ ...request, signal }));
  } catch (error) {
    const { exit } = knownError(error);
    if (exit === EXIT.interrupted) {
      const message = `the API did not answer for ${REMOVAL_MS_MAX / 1_000} s`;
      throw new SvcError(EXIT.failed, { code: 'unreachable', message });
    }
    if (exit !== EXIT.notFound) throw error;
  }
}

/** The signal is that of the time limit alone: Ctrl-C does not end the work. */
async function limited<T>(clock: Clock, work: (signal: AbortSignal) => Promise<T>): Promise<T> {
  const late = new AbortController();
  const cancel = clock.after(REMOVAL_MS_MAX, () => late.abort());
  try {
    return await work(late.signal);
  } finally {
    cancel();
  }
}

/** The first Ctrl-C does not end the work. It only begins the time that the work still has. */
async function outlasting<T>(
  { clock, interrupted, tell }: SvcDeps,
  work: (signal: AbortSignal) => Promise<T>,
): Promise<T> {
  const late = new AbortController();
  let cancel = (): void => undefined;
  const hurry = (): void => {
    tell('Waiting for the answer to the launch, to delete its instance.\n');
    cancel = clock.after(REMOVAL_MS_MAX, () => late.abort());
  };
  interrupted.addEventListener('abort', hurry, { once: true });
  try {
    return await work(late.signal);
  } finally {
    interrupted.removeEventListener('abort', hurry);
    cancel();
  }
}
