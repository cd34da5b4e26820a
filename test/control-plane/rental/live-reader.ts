// A reader of the live stream, and events for it.
import type { Readable } from 'node:stream';
import { expect } from 'vitest';
import { countRow } from '../../../control-plane/base/db/columns.ts';
import { sql } from '../../../control-plane/base/db/db.ts';
import type { EventType } from '../../../control-plane/base/events/events.ts';
import type { Api, ApiAccount } from '../../contract/api.ts';
import { api, owner } from '../../contract/api-of-test.ts';
import { openCall } from '../../contract/live-call.ts';

const QUIET_READS = 20;

export interface Sent {
  event: string;
  id: string;
  data: unknown;
}

export interface Reader {
  /** Everything that was sent since the last call, without comments; waits for as many messages as are expected. */
  sent(least?: number): Promise<Sent[]>;
  /** All text so far. */
  text(): string;
  ended(): boolean;
  leave(): void;
  stream: Readable;
}

/** A reader that takes what it gets, on one of the control planes. */
export async function listen(
  who: Pick<ApiAccount, 'key'> = owner,
  options: { on?: Api; lastEventId?: string; after?: string; address?: string } = {},
): Promise<Reader> {
  const { on = api } = options;
  const stream = await openCall(on, who, options);
  let text = '';
  let taken = 0;
  let ended = false;
  stream.setEncoding('utf8').on('data', (chunk: string) => (text += chunk));
  stream.on('close', () => (ended = true));
  const messages = (): Sent[] => text.split('\n\n').slice(0, -1).flatMap(messageOf);
  const sent = async (least = 0): Promise<Sent[]> => {
    await on.world.rooms.live.tick();
    await settled(() => text.length);
    await expect.poll(() => messages().length - taken).toBeGreaterThanOrEqual(least);
    const fresh = messages().slice(taken);
    taken += fresh.length;
    return fresh;
  };
  return { sent, text: () => text, ended: () => ended, leave: () => void stream.destroy(), stream };
}

function messageOf(block: string): Sent[] {
  const fields = Object.fromEntries(block.split('\n').map((line) => line.split(/: (.*)/s, 2)));
  const { event, id = '', data = 'null' } = fields;
  return event === undefined ? [] : [{ event, id, data: JSON.parse(data) as unknown }];
}

/** Waits until nothing more comes. The stream reads the database between its pieces, so other reads are a measure of its time. */
async function settled(length: () => number): Promise<void> {
  let before = -1;
  for (let quiet = 0; quiet < QUIET_READS; quiet += 1) {
    if (length() !== before) quiet = 0;
    before = length();
    await api.world.db.read.one(countRow, sql`select 1 as count`);
    await api.world.clock.advance(1);
  }
}

export const typesOf = (sent: readonly Sent[]): string[] => sent.map(({ event }) => event);

/** Events of the journal, without what would lead to them. */
export async function append(count: number, type: EventType = 'instance.placed', orgId = owner.orgId): Promise<void> {
  const { events } = api.world.rooms;
  await api.world.db.tx('test.append', async (tx) => {
    for (let i = 0; i < count; i += 1) await events.append(tx, { type, subjectId: 'i-x', orgId, data: {} });
  });
}
