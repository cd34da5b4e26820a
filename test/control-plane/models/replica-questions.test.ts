// Questions of spot checks: varied like those of customers, and nothing in them is the same each time.
import { expect, test } from 'vitest';
import { newQuestion } from '../../../control-plane/models/replicas/questions.ts';
import { seededRng } from '../../../shared/rng.ts';

const COUNT = 2_000;
const rng = seededRng(7);
const questions = Array.from({ length: COUNT }, () => newQuestion(rng));

/** The largest share of the questions that have the same key. */
function largestShare(keys: readonly string[]): number {
  const counts = [...Map.groupBy(keys, (key) => key).values()].map((same) => same.length);
  return Math.max(...counts) / COUNT;
}

test('hardly any question comes twice, and none is a large share', () => {
  const prompts = questions.map(({ prompt }) => prompt);
  expect(new Set(prompts).size).toBeGreaterThan(0.97 * COUNT);
});

test.each([
  ['beginning', (prompt: string) => prompt.slice(0, 12)],
  ['end', (prompt: string) => prompt.slice(-20)],
])('no %s is that of many questions', (_what, part) => {
  expect(largestShare(questions.map(({ prompt }) => part(prompt)))).toBeLessThan(0.15);
});

test('no word is in most of the questions but the most common ones', () => {
  const words = questions.flatMap(({ prompt }) => [...new Set(prompt.toLowerCase().match(/[a-z]{4,}/g))]);
  expect(largestShare(words)).toBeLessThan(0.6);
});

test('the limits of the answers vary, and leave room for the beginning that is compared', () => {
  expect(new Set(questions.map(({ tokensMax }) => tokensMax)).size).toBeGreaterThan(5);
  expect(Math.min(...questions.map(({ tokensMax }) => tokensMax))).toBeGreaterThanOrEqual(32);
});

test('every question is a whole text that asks for something', () => {
  for (const { prompt } of questions) {
    expect(prompt).not.toMatch(/undefined|null|\[object|NaN/);
    expect(prompt.length).toBeGreaterThan(20);
  }
});
