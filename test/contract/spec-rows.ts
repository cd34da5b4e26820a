// The rules of the interface specification, each with the test that proves it. spec-rows.test.ts fails when a test is gone.
import { AUTHENTICATION_AND_EVENTS_ROWS } from './spec-rows/authentication-and-events.ts';
import { COMMUNITY_SUPPLY_ROWS } from './spec-rows/community-supply.ts';
import { ENDPOINTS_ROWS } from './spec-rows/endpoints.ts';
import { ERRORS_ROWS } from './spec-rows/errors.ts';
import { INFERENCE_ROWS } from './spec-rows/inference.ts';
import { INSTANCE_FIELDS_ROWS } from './spec-rows/instance-fields.ts';
import { INSTANCES_ROWS } from './spec-rows/instances.ts';
import { LIMITS_ROWS } from './spec-rows/limits.ts';
import { MODELS_AND_CALLS_ROWS } from './spec-rows/models-and-calls.ts';
import { RESERVATIONS_TO_ENVIRONMENTS_ROWS } from './spec-rows/reservations-to-environments.ts';
import { RESOURCES_ROWS } from './spec-rows/resources.ts';
import { STATES_ROWS } from './spec-rows/states.ts';

export interface SpecRow {
  /** Section of the specification. */
  section: string;
  rule: string;
  /** Below `test/`. */
  file: string;
  /** The title as it is written in the file. */
  test: string;
}

/** Section -> rows of [rule, file, test]. */
export type RowsBySection = Record<string, readonly [string, string, string][]>;

const PARTS: readonly RowsBySection[] = [
  RESOURCES_ROWS,
  INSTANCE_FIELDS_ROWS,
  RESERVATIONS_TO_ENVIRONMENTS_ROWS,
  COMMUNITY_SUPPLY_ROWS,
  STATES_ROWS,
  INSTANCES_ROWS,
  ENDPOINTS_ROWS,
  AUTHENTICATION_AND_EVENTS_ROWS,
  ERRORS_ROWS,
  LIMITS_ROWS,
  INFERENCE_ROWS,
  MODELS_AND_CALLS_ROWS,
];

export const SPEC_ROWS: readonly SpecRow[] = PARTS.flatMap((part) =>
  Object.entries(part).flatMap(([section, rows]) => rows.map(([rule, file, test]) => ({ section, rule, file, test }))),
);
