// Runs every check of the project, lane after lane, and ends with one table. `npm test` is this file.
import { parseArgs } from 'node:util';
import { LANES, runLane, stopLaneOnSignal, type Outcome } from './kit/lanes.ts';
import { summaryLines } from './kit/report.ts';
import { installMissing } from './kit/setup.ts';

const { values } = parseArgs({
  options: {
    /** Lanes by name, separated by commas. */
    only: { type: 'string' },
    /** Full counts instead of the reduced ones: the tests read SOAK=1. */
    soak: { type: 'boolean', default: false },
  },
});

const wanted = values.only?.split(',') ?? LANES.map(({ name }) => name);
const unknown = wanted.filter((name) => !LANES.some((lane) => lane.name === name));
if (unknown.length > 0) {
  console.error(`Unknown lane ${unknown.join(', ')}: there are ${LANES.map(({ name }) => name).join(', ')}.`);
  process.exit(2);
}

stopLaneOnSignal();
const lanes = LANES.filter(({ name }) => wanted.includes(name));
const missing = installMissing(
  [...new Set(lanes.flatMap(({ needs = [], wants = [] }) => [...needs, ...wants]))],
  console.log,
);
const outcomes: Outcome[] = [];
for (const lane of lanes) {
  console.log(`\n== ${lane.name}`);
  const outcome = await runLane(lane, missing, values.soak ? { SOAK: '1' } : {});
  if (outcome.note !== undefined) console.log(`${lane.name} ${outcome.verdict}: ${outcome.note}`);
  outcomes.push(outcome);
}

const mustNotSkip = process.env['CI'] === 'true';
const bad = outcomes.filter(({ verdict }) => verdict === 'failed' || (mustNotSkip && verdict === 'skipped'));
console.log(summaryLines(outcomes).join('\n'));
process.exitCode = bad.length === 0 ? 0 : 1;
