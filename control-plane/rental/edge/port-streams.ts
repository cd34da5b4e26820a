// Opens the streams into which connections to public ports are relayed.
//
// Anyone can connect to SSH, and each connection sends the host all keys that may log in. So a connection waits while the host has not read much of
// what it was sent, because otherwise its link would be ended, for all tenants. Connections to the same SSH server are asked for one after another.
// So the keys of one of them are in memory, not those of all that wait.
import type { Duplex } from 'node:stream';
import type { Clock } from '../../../shared/clock.ts';
import { STREAM_DIAL_MS_MAX } from '../../../shared/limits.ts';
import type { OpenMessage } from '../../../shared/protocol/link.ts';
import type { Link } from '../../fleet/link/link.ts';
import { StreamError } from '../../fleet/link/streams.ts';
import type { EndpointAccess } from './access.ts';

/** What a public port leads to: SSH, or a port of the application. */
export interface PortTarget {
  instanceId: string;
  appPort: number | null;
}

export interface PortClient {
  ip: string;
  /** Aborts once the client has left. */
  gone: AbortSignal;
}

/** The stream that a host was asked to open. It may come later: the next connection does not wait for it. */
export interface Asked {
  stream: Promise<Duplex>;
}

export interface PortStreams {
  /** Undefined if nobody may connect, or if the client has left. @throws StreamError if the host does not read for too long */
  ask(target: PortTarget, client: PortClient): Promise<Asked | undefined>;
}

interface PortStreamsDeps {
  clock: Pick<Clock, 'monotonicMs' | 'sleep'>;
  link: Pick<Link, 'openStream' | 'isBehind'>;
  /** Who may connect now; undefined if the instance must not be reached. */
  access(instanceId: string): Promise<EndpointAccess | undefined>;
}

/** How often a connection looks whether its host has read what it was sent. */
const BEHIND_PERIOD_MS = 50;

export function openPortStreams(deps: PortStreamsDeps): PortStreams {
  const inTurn = openTurns();
  return {
    ask: ({ instanceId, appPort }, client) => {
      if (appPort !== null) return askForApp({ instanceId, appPort }, client, deps);
      const untilMs = deps.clock.monotonicMs() + STREAM_DIAL_MS_MAX;
      return inTurn(instanceId, () => askForSsh(instanceId, { ...client, untilMs }, deps));
    },
  };
}

async function askForApp(
  { instanceId, appPort }: { instanceId: string; appPort: number },
  client: PortClient,
  { access: readAccess, link }: PortStreamsDeps,
): Promise<Asked | undefined> {
  const access = client.gone.aborted ? undefined : await readAccess(instanceId);
  if (access === undefined || client.gone.aborted) return undefined;
  return { stream: link.openStream(access.machineId, access.workloadId, { kind: 'tcp', port: appPort }) };
}

async function askForSsh(
  instanceId: string,
  client: PortClient & { untilMs: number },
  { access: readAccess, clock, link }: PortStreamsDeps,
): Promise<Asked | undefined> {
  while (!client.gone.aborted) {
    const access = await readAccess(instanceId);
    if (access === undefined || client.gone.aborted) return undefined;
    const { machineId, workloadId, authorizedKeys } = access;
    if (!link.isBehind(machineId)) {
      const target: OpenMessage['target'] = { kind: 'ssh', authorized_keys: authorizedKeys, client_ip: client.ip };
      return { stream: link.openStream(machineId, workloadId, target) };
    }
    // Keys may change during the wait, so they are read again after it.
    while (link.isBehind(machineId) && !client.gone.aborted) {
      if (clock.monotonicMs() >= client.untilMs) throw new StreamError('link', 'the host does not read from its link');
      await clock.sleep(BEHIND_PERIOD_MS);
    }
  }
  return undefined;
}

type InTurn = <T>(name: string, work: () => Promise<T>) => Promise<T>;

/** Runs one piece of work of the same name at a time, in the order of the calls. */
function openTurns(): InTurn {
  const last = new Map<string, Promise<unknown>>();
  return (name, work) => {
    const result = (last.get(name) ?? Promise.resolve()).then(work);
    const end = (): void => {
      if (last.get(name) === ended) last.delete(name);
    };
    const ended: Promise<unknown> = result.then(end, end);
    last.set(name, ended);
    return result;
  };
}
