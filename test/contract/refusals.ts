// What a refusal must look like on its path: an envelope on those of inference, a problem document on all others.
import { expect } from 'vitest';
import { inferenceCode, InferenceError, isInferencePath } from '../../shared/api/inference.ts';
import { isOauthPath, OauthError } from '../../shared/api/device-login.ts';
import { Problem } from '../../shared/api/problem.ts';
import { type ErrorCode, ERRORS } from '../../shared/errors.ts';
import type { Answer } from './api.ts';

export interface Refusal {
  code: string;
  text: string;
  /** Members and parameters at fault: the first of them in an envelope, which has room for one. */
  fields: string[];
}

/** @throws if it has not the form that its path calls for */
export function refusalOf(path: string, answer: Answer): Refusal {
  if (isOauthPath(path)) {
    expect(answer.headers['content-type']).toBe('application/json; charset=utf-8');
    const { error, error_description: text } = OauthError.parse(answer.json);
    return {
      code: error,
      text,
      fields: text.match(/[\w.[\]]+/g) ?? [],
    };
  }
  if (isInferencePath(path)) {
    expect(answer.headers['content-type']).toBe('application/json; charset=utf-8');
    const { error } = InferenceError.parse(answer.json);
    return { code: error.code, text: error.message, fields: error.param === null ? [] : [error.param] };
  }
  expect(answer.headers['content-type']).toBe('application/problem+json');
  const { code, detail, errors } = Problem.parse(answer.json);
  return { code, text: detail, fields: errors.map(({ field }) => field) };
}

/** Holds a refusal to its code, as its path spells that, and to the status of it. */
export function expectRefused(path: string, answer: Answer, code: ErrorCode): Refusal {
  const refusal = refusalOf(path, answer);
  expect(refusal.code).toBe(isInferencePath(path) ? inferenceCode(code) : code);
  expect(answer.status).toBe(ERRORS[code].status);
  return refusal;
}
