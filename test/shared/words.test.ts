// Ids, waiting times, states and errors: the small words that everything else is built from.
import { describe, expect, test } from 'vitest';
import { fullJitterMs, spreadMs } from '../../shared/backoff.ts';
import { ERRORS, fail, failField, ServiceError } from '../../shared/errors.ts';
import { createIds, uuidOf } from '../../shared/ids.ts';
import { createLog } from '../../shared/log.ts';
import { negotiateVersion, PROTOCOL_MAX, PROTOCOL_MIN } from '../../shared/protocol/link.ts';
import { seededRng } from '../../shared/rng.ts';
import * as states from '../../shared/states.ts';
import { virtualClock } from '../kit/virtual-clock.ts';

describe('ids', () => {
  const clock = virtualClock();
  const ids = createIds(clock, seededRng(1));

  test('have their specified forms', () => {
    expect(ids.uuid()).toMatch(/^[0-9a-f]{8}-[0-9a-f]{4}-7[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}$/);
    expect(ids.instance()).toMatch(/^i-[a-z2-7]{20}$/);
    expect(ids.prefixed('key')).toMatch(/^key_[0-9a-hjkmnp-tv-z]{26}$/);
    expect(ids.ulid()).toMatch(/^[0-7][0-9A-HJKMNP-TV-Z]{25}$/);
    expect(ids.secret(32)).toMatch(/^[A-Za-z0-9_-]{43}$/);
  });

  test('sort by their creation and never repeat', async () => {
    const born: string[] = [];
    const contracts: string[] = [];
    for (let i = 0; i < 50; i += 1) {
      born.push(ids.uuid(), ids.prefixed('evt'));
      contracts.push(ids.ulid());
      await clock.advance(1);
    }
    const uuids = born.filter((id) => !id.startsWith('evt'));
    const prefixed = born.filter((id) => id.startsWith('evt'));
    expect(uuids.toSorted()).toEqual(uuids);
    expect(prefixed.toSorted()).toEqual(prefixed);
    expect(contracts.toSorted()).toEqual(contracts);
    expect(new Set(born).size).toBe(born.length);
  });

  test('that depend on a name and a time never change, have version 7, and sort by that time', () => {
    const [first, second] = [uuidOf('seg_1:0-5:supplier', 5), uuidOf('seg_1:0-5:supplier', 6)];
    expect(first).toMatch(/^00000000-0005-7[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}$/);
    expect(uuidOf('seg_1:0-5:supplier', 5)).toBe(first);
    expect(uuidOf('seg_1:5-9:supplier', 5)).not.toBe(first);
    expect(first < second).toBe(true);
  });

  test('from the same seed are equal', () => {
    const again = (): string => createIds(virtualClock(), seededRng(5)).instance();
    expect(again()).toBe(again());
  });
});

test('waiting times stay in their bounds and grow', () => {
  const rng = seededRng(2);
  for (let attempt = 0; attempt < 40; attempt += 1) {
    const ms = fullJitterMs(attempt, 500, 15_000, rng);
    expect(ms).toBeGreaterThanOrEqual(500);
    expect(ms).toBeLessThanOrEqual(Math.min(15_000, 500 * 2 ** attempt));
    expect(Math.abs(spreadMs(1000, rng) - 1000)).toBeLessThanOrEqual(200);
  }
});

describe('states', () => {
  const tables = {
    instance: states.INSTANCE_STATES,
    operation: states.OPERATION_STATES,
    machine: states.MACHINE_STATES,
    workload: states.WORKLOAD_STATES,
    reservation: states.RESERVATION_STATES,
  };

  test.each(Object.entries(tables))(
    'of the %s lead only to states of the same table, never to themselves',
    (_name, table) => {
      const known = Object.keys(table);
      for (const [from, targets] of Object.entries<readonly string[]>(table)) {
        expect(targets.every((to) => known.includes(to) && to !== from)).toBe(true);
      }
    },
  );

  test('that end a rental lead nowhere but to terminated', () => {
    expect([states.INSTANCE_STATES.error, states.INSTANCE_STATES.stopped, states.INSTANCE_STATES.terminated]).toEqual([
      ['terminated'],
      ['terminated'],
      [],
    ]);
  });
});

test('errors carry their code and say which field broke which rule', () => {
  expect(() => fail('not_found', 'There is no such thing.')).toThrow(ServiceError);
  const broken = { field: 'gpu_count', rule: 'must be at most 8' };
  expect(() => failField(broken.field, broken.rule)).toThrow(
    expect.objectContaining({ code: 'validation_failed', details: expect.objectContaining({ errors: [broken] }) }),
  );
  expect(Object.values(ERRORS).every(({ status }) => status === 0 || (status >= 400 && status < 600))).toBe(true);
});

test('the highest version that both sides speak is used', () => {
  expect(negotiateVersion({ min: PROTOCOL_MIN, max: PROTOCOL_MAX + 5 })).toBe(PROTOCOL_MAX);
  expect(negotiateVersion({ min: PROTOCOL_MAX + 1, max: PROTOCOL_MAX + 5 })).toBeUndefined();
});

test('logs never carry a secret, at the top or one level down', () => {
  const lines: string[] = [];
  const log = createLog('t', 'info', { write: (line) => void lines.push(line) });
  log.info({ token: 'hunter2', request: { authorization: 'hunter2', password: 'hunter2' } }, 'hello');
  expect(lines.join()).not.toContain('hunter2');
  expect(lines.join()).toContain('[redacted]');
});
