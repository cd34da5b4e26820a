// The draw of comments: it finds each comment of a source with its place, and draws the same ones for the same seed.
import { expect, test } from 'vitest';
import { drawComments } from './draw-comments.ts';
import { commentsOf } from './sources.ts';

const SOURCE = {
  path: 'shared/a.ts',
  text: [
    '// The first line',
    '// and the second.',
    'const url = "http://a.example"; // no comment of its own',
    '/** One line. */',
    'const x = 1;',
    '  /**',
    '   * Two',
    '   * lines.',
    '   */',
  ].join('\n'),
};

test('runs of lines and blocks are one comment each, without their marks', () => {
  expect(commentsOf(SOURCE)).toEqual([
    { place: 'shared/a.ts:1', text: 'The first line\nand the second.' },
    { place: 'shared/a.ts:4', text: 'One line.' },
    { place: 'shared/a.ts:6', text: 'Two\nlines.' },
  ]);
});

test('a migration has comments too', () => {
  const text = ['-- A table.', 'create table a (', '  -- The key.', '  id TEXT', ');'].join('\n');
  expect(commentsOf({ path: 'a.sql', text })).toEqual([
    { place: 'a.sql:1', text: 'A table.' },
    { place: 'a.sql:3', text: 'The key.' },
  ]);
});

test('one seed draws the same comments, each once, and never more than there are', () => {
  const draw = drawComments([SOURCE], { seed: 7, count: 2 });
  expect(drawComments([SOURCE], { seed: 7, count: 2 })).toEqual(draw);
  expect(new Set(draw.map(({ place }) => place)).size).toBe(2);
  expect(drawComments([SOURCE], { seed: 7, count: 10 })).toHaveLength(3);
});
