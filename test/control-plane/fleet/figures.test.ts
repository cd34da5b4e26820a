// Stored documents: an instance's part of one is what a parse of the whole shows, whatever names a host has chosen.
import fc from 'fast-check';
import { expect, test } from 'vitest';
import {
  CONTAINER_NAMES,
  figuresOf,
  figuresOfInstance,
  GPU_NAMES,
  newTally,
  type StoredFigures,
  summaryOf,
} from '../../../control-plane/fleet/metrics/figures.ts';

const OWN = 'i-aaaaaaaaaaaaaaaaaaaa';
const OTHER = 'i-bbbbbbbbbbbbbbbbbbbb';

const summary = (names: readonly string[]) =>
  fc.array(fc.option(fc.double({ noNaN: true, noDefaultInfinity: true })), {
    minLength: names.length,
    maxLength: names.length,
  });
const uuid = fc.oneof(
  fc.string({ unit: 'binary' }),
  fc.constantFrom('{"uuid":', `{"instance_id":"${OWN}"`, `","instance_id":"${OWN}","n":1}`, '}', '{', '\\', '\\"'),
);
const gpu = fc.record({
  uuid,
  index: fc.nat(255),
  instance_id: fc.constantFrom(OWN, OTHER, null),
  values: summary(GPU_NAMES),
});
const container = fc.record({ instance_id: fc.constantFrom(OWN, OTHER), values: summary(CONTAINER_NAMES) });
const sumOf = (names: readonly string[], values: (number | null)[]) => {
  const tally = newTally(names);
  tally.add(summaryOf(values));
  return tally.sum();
};
const stored = fc
  .record({ gpus: fc.array(gpu, { maxLength: 4 }), containers: fc.array(container, { maxLength: 3 }) })
  .map(({ gpus, containers }): StoredFigures => ({
    gpus: gpus.map(({ values, ...one }) => ({ ...one, ...sumOf(GPU_NAMES, values) })),
    containers: containers.map(({ values, ...one }) => ({ ...one, ...sumOf(CONTAINER_NAMES, values) })),
    host: null,
  }));

test("an instance's part of a document is that of the whole", () => {
  fc.assert(
    fc.property(stored, (figures) => {
      const document = JSON.stringify(figures);
      const { gpus, containers } = figuresOf(document);
      const own = (one: { instance_id: string | null }): boolean => one.instance_id === OWN;
      expect(figuresOfInstance(document, OWN)).toEqual({ gpus: gpus.filter(own), containers: containers.filter(own) });
    }),
  );
});

test('the parts of other instances are not even parsed', () => {
  const one = { uuid: 'GPU-a', index: 0, instance_id: OWN, ...sumOf(GPU_NAMES, []) };
  const document = `{"gpus":[{"uuid":"GPU-b" no JSON},${JSON.stringify(one)},no JSON],"containers":[],"host":null}`;
  expect(figuresOfInstance(document, OWN)).toEqual({ gpus: [one], containers: [] });
  expect(figuresOfInstance(document, OTHER)).toEqual({ gpus: [], containers: [] });
});
