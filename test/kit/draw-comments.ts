// Draws comments of the product at random and prints them with their places, for a person who reads them one by one: `npm run comments`.
import { resolve } from 'node:path';
import { parseArgs } from 'node:util';
import { seededRng } from '../../shared/rng.ts';
import { type Comment, commentsOf, readSources, type SourceFile } from './sources.ts';

/** The seed of the reading that the project counts: the same comments for everybody, until the sources change. */
const SEED = 20261122;
const COUNT = 200;

/** `count` different comments, the same for the same seed and the same sources. */
export function drawComments(
  files: readonly SourceFile[],
  { seed, count }: { seed: number; count: number },
): Comment[] {
  const rng = seededRng(seed);
  const left = files.flatMap(commentsOf);
  return Array.from({ length: Math.min(count, left.length) }, () => {
    const [drawn] = left.splice(Math.floor(rng.float() * left.length), 1);
    return drawn ?? { place: '', text: '' };
  });
}

if (import.meta.main) {
  const { values } = parseArgs({ options: { seed: { type: 'string' }, count: { type: 'string' } } });
  const files = readSources(resolve(import.meta.dirname, '../..')).filter(({ path }) =>
    /^(agent|control-plane|installer|shared)\/.*\.tsx?$/.test(path),
  );
  const draw = { seed: Number(values.seed ?? SEED), count: Number(values.count ?? COUNT) };
  for (const { place, text } of drawComments(files, draw))
    process.stdout.write(`${place}\n  ${text.replaceAll('\n', '\n  ')}\n`);
}
