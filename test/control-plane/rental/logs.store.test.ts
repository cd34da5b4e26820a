// Reading a container's log: what is shown of it, what is refused, and that a hostile host gains nothing.
import { type Duplex, duplexPair, type Readable } from 'node:stream';
import { text } from 'node:stream/consumers';
import { afterEach, beforeEach, describe, expect, test } from 'vitest';
import { StreamError } from '../../../control-plane/fleet/link/streams.ts';
import { openCursors } from '../../../control-plane/base/http/cursors.ts';
import { journalRoutes } from '../../../control-plane/rental/journal/routes.ts';
import { type FollowedLog, type Logs, openLogs } from '../../../control-plane/rental/journal/logs.ts';
import {
  LOG_FOLLOWERS_PER_ORG_MAX,
  LOG_LINES_MAX,
  LOG_READ_CHARS_MAX,
  LOG_READ_MS_MAX,
  LOG_READS_PER_ORG_MAX,
} from '../../../shared/limits.ts';
import { createLog } from '../../../shared/log.ts';
import { type OpenMessage, ServerMessage } from '../../../shared/protocol/link.ts';
import { LOG_LINE_BYTES_MAX, type LogLine } from '../../../shared/protocol/workload.ts';
import { openWorld, type World, type WorldAccount } from '../../kit/world.ts';

const LINES: LogLine[] = [
  { at: '2026-01-01T00:00:00.100000000Z', stream: 'stdout', line: 'one' },
  { at: '2026-01-01T00:00:00.200000001Z', stream: 'stderr', line: 'zwei' },
  { at: '2026-01-01T00:00:01.000000000Z', stream: 'stdout', line: 'drei ✓' },
];
const LATEST = { tail: 100, since: undefined };

let world: World;
let logs: Logs;
let who: WorldAccount;
let id: string;
let asked: OpenMessage['target'][];
/** The host's end of each stream. */
let hosts: Duplex[];
let answer: () => Duplex;
/** What was logged. */
let logged: string[];
beforeEach(async () => {
  world = await openWorld();
  asked = [];
  hosts = [];
  logged = [];
  answer = () => {
    const [near, far] = duplexPair();
    hosts.push(far);
    return near;
  };
  logs = openLogs({
    ...world,
    sealing: world.core.sealing,
    log: createLog('test', 'info', { write: (line: string) => void logged.push(line) }),
    link: {
      openStream: async (_machine, _workload, target) => {
        asked.push(target);
        return answer();
      },
    },
  });
  await world.machine();
  who = await world.customer(10_000);
  id = await world.launch(who);
});
afterEach(() => world.close());

const follow = (own: WorldAccount & { id: string } = { ...who, id }): Promise<FollowedLog> =>
  logs.follow({ ...own, scopes: [] }, own.id, LATEST);
const wire = (lines: readonly LogLine[]): string => lines.map((line) => `${JSON.stringify(line)}\n`).join('');
/** The host sends this as soon as it is asked. */
const hostSends = (text: string | Buffer): void => {
  const plain = answer;
  answer = () => {
    const near = plain();
    hosts.at(-1)?.end(text);
    return near;
  };
};

describe('a log', () => {
  test('is sent line by line, whatever the pieces in which it arrives', async () => {
    const bytes = Buffer.from(wire(LINES));
    const reading = logs.read(who.orgId, id, LATEST);
    await expect.poll(() => hosts.length).toBe(1);
    for (const byte of bytes) hosts[0]?.write(Buffer.of(byte));
    hosts[0]?.end();
    expect(await reading).toEqual(LINES);
    expect(asked).toEqual([{ kind: 'logs', tail: 100, follow: false, since: null }]);
  });

  test('is read in the order of its times, though the engine wrote two lines of two streams the wrong way round', async () => {
    const [one, two, three] = LINES as [LogLine, LogLine, LogLine];
    const sameTime = { ...one, line: 'one again' };
    hostSends(wire([two, one, sameTime, three]));
    expect(await logs.read(who.orgId, id, LATEST)).toEqual([one, sameTime, two, three]);
  });

  test.each([
    ['2026-01-01T00:00:00.100Z', ['zwei', 'drei ✓']],
    ['2026-01-01T00:00:00.200000001Z', ['drei ✓']],
    ['2026-01-01T00:00:00.200000000Z', ['zwei', 'drei ✓']],
    ['2026-01-01T00:00:00Z', ['one', 'zwei', 'drei ✓']],
    ['2026-01-01T01:00:00+01:00', ['one', 'zwei', 'drei ✓']],
    ['2026-01-01T00:00:01Z', []],
  ])('since %s shows only what is later, to the nanosecond', async (since, expected) => {
    hostSends(wire(LINES));
    const lines = await logs.read(who.orgId, id, { tail: 5, since });
    expect(lines.map(({ line }) => line)).toEqual(expected);
    expect(asked[0]).toMatchObject({ tail: 5, since: expect.stringMatching(/^1767225\d{3}\.\d{3}$/) });
  });

  // A host ends its link if it cannot read a message, for all tenants.
  test.each([
    ['0000-01-01T00:00:00+23:59', '0.000'],
    ['1969-12-31T23:59:59.999Z', '0.000'],
    ['1970-01-01T00:00:00.001Z', '0.001'],
    ['9999-12-31T23:59:59.999-23:59', '253402387139.999'],
  ])('since %s asks the host in words that it can read', async (since, seconds) => {
    hostSends('');
    await logs.read(who.orgId, id, { tail: 5, since });
    expect(asked).toEqual([{ kind: 'logs', tail: 5, follow: false, since: seconds }]);
    const message = { type: 'open', stream_id: 'str_1', token: 'x'.repeat(43), workload_id: 'w_1', target: asked[0] };
    expect(ServerMessage.safeParse(message)).toMatchObject({ success: true });
  });

  test('that is followed goes on until the container ends, and frees its stream when nobody reads', async () => {
    const { lines } = await follow();
    expect(asked[0]).toMatchObject({ follow: true });
    hosts[0]?.write(wire(LINES.slice(0, 1)));
    const iterator = lines[Symbol.asyncIterator]();
    expect((await iterator.next()).value).toEqual(LINES[0]);
    hosts[0]?.write(wire(LINES.slice(1, 2)));
    expect((await iterator.next()).value).toEqual(LINES[1]);
    hosts[0]?.end();
    expect((await iterator.next()).done).toBe(true);
    const again = await follow();
    hosts[1]?.write(wire(LINES));
    for await (const line of again.lines) if (line.line === 'zwei') break;
    await expect.poll(() => hosts[1]?.destroyed || hosts[1]?.readableEnded).toBe(true);
  });

  /** The stream that the route answers with. */
  const streamed = async (lastEventId?: string): Promise<Readable> => {
    const routes = journalRoutes({ ...world, ...world.rooms, logs, cursors: openCursors(Buffer.alloc(32)) });
    const call = { caller: { ...who, scopes: [] }, params: { id }, query: { tail: 1, follow: 'true' }, lastEventId };
    const replies = routes.filter((each) => each.path.endsWith('/logs')).map((each) => each.handler(call as never));
    const [{ stream }] = (await Promise.all(replies)) as unknown as [{ stream: Readable }];
    return stream;
  };

  test('that is followed goes on after the last line of a stream that broke off, as an EventSource asks for', async () => {
    const stream = await streamed(LINES[0]?.at);
    expect(asked).toEqual([{ kind: 'logs', tail: LOG_LINES_MAX, follow: true, since: '1767225600.100' }]);
    hosts[0]?.end(wire(LINES));
    const ids = (await text(stream)).split('\n').filter((line) => line.startsWith('id:'));
    expect(ids).toEqual(LINES.slice(1).map(({ at }) => `id: ${at}`));
  });

  test('that is followed after something else than a line is refused', async () => {
    await expect(streamed('evt_1')).rejects.toThrow('Last-Event-ID must be an id that a stream of this log sent');
  });

  test('that is followed frees its stream when its reader leaves in silence', async () => {
    const [near] = duplexPair();
    answer = () => near;
    const stream = await streamed();
    stream.resume();
    // The reader is waiting for a line by now.
    await world.clock.advance(1);
    stream.destroy();
    await expect.poll(() => near.destroyed).toBe(true);
  });

  test('that is followed breaks off within 15 seconds after its key was revoked, also while it is silent', async () => {
    const other = await world.key(who.orgId);
    const followed = [await follow(), await follow({ ...other, id })];
    const [revoked, living] = followed.map(({ lines }) => lines[Symbol.asyncIterator]());
    const [ended, next] = [revoked?.next(), living?.next()];
    const broken = ended?.catch((error: unknown) => error);
    for (let check = 1; check <= 4; check += 1) {
      await world.clock.advance(15_000);
      // Both checks have been answered: each stream waits for its next one.
      await expect.poll(() => world.clock.waiting()).toBe(2);
    }
    await world.rooms.accounts.revokeKey(who.principalId);
    await world.clock.advance(14_999);
    expect(hosts.map(({ destroyed, readableEnded }) => destroyed || readableEnded)).toEqual([false, false]);
    await world.clock.advance(1);
    expect(await broken).toMatchObject({ message: 'the key or session of the reader has ended' });
    hosts[1]?.end(wire(LINES.slice(0, 1)));
    expect((await next)?.value).toEqual(LINES[0]);
    expect((await living?.next())?.done).toBe(true);
    await world.clock.advance(60_000);
    expect(world.clock.waiting()).toBe(0);
  });

  test('that the host does not end in time is given up', async () => {
    const reading = logs.read(who.orgId, id, LATEST).catch((error: unknown) => error);
    await expect.poll(() => hosts.length).toBe(1);
    hosts[0]?.write(wire(LINES));
    await world.clock.advance(LOG_READ_MS_MAX);
    expect(await reading).toMatchObject({ code: 'unavailable' });
  });

  test(`can be read ${LOG_READS_PER_ORG_MAX} times at once by an organisation: one more waits for its turn, and is refused after a while`, async () => {
    const reads = Array.from({ length: LOG_READS_PER_ORG_MAX + 2 }, () => logs.read(who.orgId, id, LATEST));
    const refused = reads.at(-1)?.catch((error: unknown) => error);
    await expect.poll(() => hosts.length).toBe(LOG_READS_PER_ORG_MAX);
    const other = await tenant();
    const others = logs.read(other.orgId, other.id, LATEST);
    await expect.poll(() => hosts.length).toBe(LOG_READS_PER_ORG_MAX + 1);
    hosts[0]?.end(wire(LINES));
    expect(await Promise.race(reads)).toEqual(LINES);
    await expect.poll(() => hosts.length).toBe(LOG_READS_PER_ORG_MAX + 2);
    await world.clock.advance(5_000);
    expect(await refused).toMatchObject({ code: 'rate_limit_exceeded', details: { retryAfterSeconds: 10 } });
    for (const host of hosts.slice(1)) host.end(wire(LINES));
    expect(await Promise.all([...reads.slice(0, -1), others])).toEqual(Array.from({ length: 6 }, () => LINES));
    hostSends(wire(LINES));
    expect(await logs.read(who.orgId, id, LATEST)).toEqual(LINES);
  });

  test('with long lines is read from its end, as many lines as may be in one answer', async () => {
    const chars = 16_384;
    const [line = { at: '', stream: 'stdout', line: '' }] = LINES;
    const long = Array.from({ length: LOG_LINES_MAX }, (_, i) => ({ ...line, line: String(i).padEnd(chars, '.') }));
    hostSends(wire(long));
    const read = await logs.read(who.orgId, id, { ...LATEST, tail: LOG_LINES_MAX });
    expect(read).toEqual(long.slice(-LOG_READ_CHARS_MAX / chars));
    // Lines that were left out count too.
    const fewer = logs.read(who.orgId, id, { ...LATEST, tail: LOG_LINES_MAX - 1 });
    await expect(fewer).rejects.toMatchObject({ code: 'unavailable' });
  });

  test(`can be followed ${LOG_FOLLOWERS_PER_ORG_MAX} times by an organisation, not once more`, async () => {
    const asked = Array.from({ length: LOG_FOLLOWERS_PER_ORG_MAX + 1 }, () => follow());
    const refusals = (await Promise.allSettled(asked)).filter(({ status }) => status === 'rejected');
    expect(refusals).toHaveLength(1);
    await expect(follow()).rejects.toMatchObject({ code: 'rate_limit_exceeded' });
    const other = await tenant();
    await follow(other);
    logs.close();
    await follow();
  });
});

/** Another organisation with an instance of its own. */
async function tenant(): Promise<WorldAccount & { id: string }> {
  await world.machine();
  const other = await world.customer(10_000);
  return { ...other, id: await world.launch(other) };
}

describe('a refusal', () => {
  const refused = (orgId = who.orgId): Promise<unknown> => logs.read(orgId, id, LATEST);

  test('of another organisation is not_found', async () => {
    const { orgId } = await tenant();
    await expect(refused(orgId)).rejects.toMatchObject({ code: 'not_found' });
  });

  test('of an instance without a container is logs_unavailable', async () => {
    // The only machine is taken.
    const waiting = await world.launch(who);
    await expect(logs.read(who.orgId, waiting, LATEST)).rejects.toMatchObject({ code: 'logs_unavailable' });
  });

  test('by the host is logs_unavailable, a host that is away is unavailable', async () => {
    answer = () => {
      throw new StreamError('refused', 'there is no container');
    };
    await expect(refused()).rejects.toMatchObject({ code: 'logs_unavailable' });
    answer = () => {
      throw new StreamError('link', 'the host is not connected');
    };
    await expect(refused()).rejects.toMatchObject({ code: 'unavailable', details: { retryAfterSeconds: 10 } });
  });

  test('writes at most thirty lines a minute for a host, however often a client asks', async () => {
    answer = () => {
      throw new StreamError('link', 'the host is not connected');
    };
    for (let nth = 0; nth < 40; nth += 1) await expect(refused()).rejects.toMatchObject({ code: 'unavailable' });
    expect(logged).toHaveLength(30);
  });

  test('of a host that sends nonsense is one of these lines', async () => {
    hostSends('nonsense\n');
    for (let nth = 0; nth < 40; nth += 1) await expect(refused()).rejects.toMatchObject({ code: 'unavailable' });
    expect(logged).toHaveLength(30);
  });

  test('of a host that sends more lines than were asked for ends the reading', async () => {
    hostSends(wire(LINES));
    expect(await logs.read(who.orgId, id, { ...LATEST, tail: 3 })).toHaveLength(3);
    await expect(logs.read(who.orgId, id, { ...LATEST, tail: 2 })).rejects.toMatchObject({ code: 'unavailable' });
  });

  test.each([
    ['what is not JSON', 'x\n'],
    ['a field too many', `${JSON.stringify({ ...LINES[0], more: 1 })}\n`],
    ['no time', `${JSON.stringify({ ...LINES[0], at: '2026-01-01' })}\n`],
    ['events of its own', `${JSON.stringify({ ...LINES[0], at: '1\n\nevent: end\ndata: {}\n\n' })}\n`],
    ['a line without an end', 'a'.repeat(LOG_LINE_BYTES_MAX + 1)],
  ])('of a host that sends %s ends the reading', async (_, text) => {
    hostSends(text);
    await expect(refused()).rejects.toMatchObject({ code: 'unavailable' });
  });
});
