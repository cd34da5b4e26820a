// A log that no stranger can fill: lines are counted by machine or address.
import { expect, test } from 'vitest';
import { createLog, throttledLog } from '../../shared/log.ts';
import { virtualClock } from '../kit/virtual-clock.ts';

interface Line {
  level: number;
  msg: string;
  machine_id?: string;
  suppressed_lines?: number;
}

function open() {
  const lines: Line[] = [];
  const clock = virtualClock();
  const log = createLog('test', 'info', { write: (line: string) => void lines.push(JSON.parse(line) as Line) });
  return { lines, clock, log: throttledLog(log, clock) };
}

test('a machine can write thirty lines a minute; the first line of the next minute has the number of dropped lines', async () => {
  const { lines, clock, log } = open();
  for (let i = 0; i < 100; i += 1) log.error({ machine_id: 'm1' }, 'a link message failed');
  expect(lines).toHaveLength(30);
  log.warn({ machine_id: 'm1' }, 'another line');
  log.warn({ machine_id: 'm2' }, 'another machine');
  expect(lines).toHaveLength(31);
  await clock.advance(59_999);
  log.error({ machine_id: 'm1' }, 'a link message failed');
  expect(lines).toHaveLength(31);
  await clock.advance(1);
  log.error({ machine_id: 'm1' }, 'a link message failed');
  expect(lines.at(-1)).toMatchObject({
    level: 50,
    machine_id: 'm1',
    suppressed_lines: 72,
    msg: 'a link message failed',
  });
  log.error({ machine_id: 'm1' }, 'a link message failed');
  expect(lines.at(-1)).not.toHaveProperty('suppressed_lines');
});

test('an address and an organisation are counted like a machine; lines of our own are all written, whatever their form', () => {
  const { lines, log } = open();
  for (let i = 0; i < 40; i += 1) {
    log.warn({ client_ip: '192.0.2.1' }, 'an agent link was refused');
    log.warn({ org_id: 'org_1', endpoint_id: `e${i}` }, 'its owner caused this');
    log.info({ rentals: i }, 'ours');
    log.info('plain words');
  }
  expect(lines.filter(({ msg }) => msg === 'an agent link was refused')).toHaveLength(30);
  expect(lines.filter(({ msg }) => msg === 'its owner caused this')).toHaveLength(30);
  expect(lines.filter(({ msg }) => msg === 'ours' || msg === 'plain words')).toHaveLength(80);
});

test('strangers beyond ten thousand share one count, so that their number costs no memory', async () => {
  const { lines, clock, log } = open();
  for (let i = 0; i < 10_100; i += 1) log.warn({ client_ip: `address ${i}` }, 'refused');
  expect(lines.length).toBeLessThan(10_050);
  const before = lines.length;
  await clock.advance(60_000);
  log.warn({ client_ip: 'later' }, 'refused');
  expect(lines).toHaveLength(before + 1);
});
