// The log of a container over the public API: read, followed while it is written, and ended with the container.
import { afterAll, beforeAll, expect, test } from 'vitest';
import { InstanceLog } from '../../shared/api/instance-journal.ts';
import type { Instance } from '../../shared/api/instance.ts';
import { terminate } from '../kit/api-client.ts';
import { eventually } from '../kit/processes.ts';
import { openRentalStack, type RentalStack } from '../kit/rental-stack.ts';

let stack: RentalStack;
let instance: Instance;

const PROGRAM = 'echo begin; echo trouble >&2; n=0; while :; do n=$((n+1)); echo "tick $n"; sleep 0.2; done';

beforeAll(async () => {
  stack = await openRentalStack();
  instance = await stack.rent({ entrypoint: ['sh', '-c', PROGRAM] });
});
afterAll(async () => {
  expect(await stack.end()).toEqual([]);
});

const read = (query = ''): Promise<InstanceLog> =>
  stack.customer.api.get(`/instances/${instance.id}/logs${query}`, InstanceLog);

test('the last lines have their time and their stream', async () => {
  const { data } = await eventually('some ticks', 10_000, async () => {
    const log = await read();
    return log.data.length >= 4 ? log : undefined;
  });
  expect(data.map(({ stream, line }) => [stream, line])).toEqual(
    expect.arrayContaining([
      ['stdout', 'begin'],
      ['stderr', 'trouble'],
      ['stdout', 'tick 1'],
    ]),
  );
  expect(data.map(({ at }) => at)).toEqual(data.map(({ at }) => at).toSorted());
  const { data: last } = await read('?tail=2');
  expect(last).toHaveLength(2);
  const { data: later } = await read(`?tail=1000&since=${encodeURIComponent(last[0]?.at ?? '')}`);
  expect(later[0]).toEqual(last[1]);
});

test('a followed log shows each line as it is written, and the end of the container', async () => {
  const response = await fetch(`${stack.controlPlane.baseUrl}/instances/${instance.id}/logs?follow=true&tail=1`, {
    headers: { authorization: `Bearer ${stack.customer.key}` },
  });
  expect(response.headers.get('content-type')).toBe('text/event-stream; charset=utf-8');
  let got = '';
  const decoder = new TextDecoder();
  const ticks = (): number => got.match(/"line":"tick \d+"/g)?.length ?? 0;
  let removal: Promise<void> | undefined;
  for await (const chunk of response.body ?? []) {
    got += decoder.decode(chunk as Uint8Array, { stream: true });
    if (ticks() >= 5) removal ??= terminate(stack.customer.api, instance.id);
  }
  await removal;
  expect(got).toMatch(/^: open\n\nid: \S+\ndata: \{"at":"[^"]+Z","stream":"stdout","line":"tick \d+"\}\n\n/);
  expect(got).toMatch(/event: end\ndata: \{\}\n\n$/);
  const refusal = await eventually('refusal', 30_000, () => read().then(() => undefined, String));
  expect(refusal).toContain('409 logs_unavailable');
});
