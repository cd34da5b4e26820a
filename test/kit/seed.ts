// The seed of random tests. It is fixed, so that each run uses the same values; the soak uses new ones each time.
import fc from 'fast-check';

const SEED = 20_261_122;

if (process.env['SOAK'] === '1') fc.configureGlobal({ numRuns: 2_000 });
else fc.configureGlobal({ seed: SEED });
