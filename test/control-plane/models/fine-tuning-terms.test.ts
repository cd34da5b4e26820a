// The path of a base model in the operator's file: its limit at both edges.
import { expect, test } from 'vitest';
import { tunableModels } from '../../kit/models.ts';

test.each([
  ['an absolute path of 1,024 characters', '/'.padEnd(1_024, 'm'), 'taken'],
  [
    'a longer path',
    '/'.padEnd(1_025, 'm'),
    'base_model_path: must be an absolute path of at most 1,024 ASCII characters',
  ],
  ['a path with other letters', '/modèle', 'base_model_path: must be an absolute path'],
  ['a relative path', 'model', 'base_model_path: must be an absolute path'],
])('%s of a base model is taken or refused by name', (_what, path, answer) => {
  const read = (): string => {
    try {
      tunableModels({ base_model_path: path });
      return 'taken';
    } catch (error) {
      return error instanceof Error ? error.message : '';
    }
  };
  expect(read()).toContain(answer);
});
