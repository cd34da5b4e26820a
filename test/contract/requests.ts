// Random requests made from the routes' own JSON Schemas: right ones, and ones with exactly one rule broken, whose field is known.
import fc from 'fast-check';
import { z } from 'zod';
import type { Route } from '../../control-plane/base/http/route.ts';

/** The parts of JSON Schema that zod writes for our routes. */
export interface Schema {
  type?: string | string[];
  enum?: unknown[];
  const?: unknown;
  format?: string;
  pattern?: string;
  minLength?: number;
  maxLength?: number;
  minimum?: number;
  maximum?: number;
  exclusiveMinimum?: number;
  minItems?: number;
  maxItems?: number;
  items?: Schema;
  properties?: Record<string, Schema>;
  required?: string[];
  propertyNames?: Schema;
  additionalProperties?: boolean | Schema;
  anyOf?: Schema[];
  /** Several patterns of one text. */
  allOf?: { pattern: string }[];
}

/** Longer texts and lists find nothing more and take long. */
const SIZE_MAX = 12;

/** The schema of a route's body or query; undefined if it takes none. */
export function inputSchema(part: Route['body']): Schema | undefined {
  if (part === undefined) return undefined;
  const { $defs = {}, ...schema } = z.toJSONSchema(part, { io: 'input' });
  return written(schema, $defs) as Schema;
}

/** Named schemas come as references; here they are written out. */
function written(value: unknown, definitions: Record<string, unknown>): unknown {
  if (typeof value !== 'object' || value === null) return value;
  if (Array.isArray(value)) return value.map((entry) => written(entry, definitions));
  const name = '$ref' in value ? String(value.$ref).replace('#/$defs/', '') : undefined;
  if (name !== undefined) return written(definitions[name], definitions);
  return Object.fromEntries(Object.entries(value).map(([key, inner]) => [key, written(inner, definitions)]));
}

/** Values that the schema allows. */
export function valid(schema: Schema): fc.Arbitrary<unknown> {
  if (schema.const !== undefined) return fc.constant(schema.const);
  if (schema.enum !== undefined) return fc.constantFrom(...schema.enum);
  if (schema.anyOf !== undefined) return fc.oneof(...schema.anyOf.map(valid));
  const types = [schema.type ?? 'null'].flat();
  return fc.oneof(...types.map((type) => validOfType(type, schema)));
}

/**
 * An object that the schema allows but for one thing, and the field that a refusal must name.
 * `asText`: it will be sent as a query, where every value is a text.
 */
export function brokenOnce(
  schema: Schema,
  { asText }: { asText: boolean },
): fc.Arbitrary<{ value: object; field: string }> {
  const fields = Object.entries(schema.properties ?? {});
  const breakings = [
    // What an open object may hold besides depends on what else is in it.
    ...(schema.additionalProperties === false
      ? [fc.constant((value: object) => ({ value: { ...value, surprise: 1 }, field: 'surprise' }))]
      : []),
    ...(schema.required ?? []).map((field) =>
      fc.constant((value: object) => ({ value: without(value, field), field })),
    ),
    ...fields.flatMap(([field, inner]) => {
      const wrong = invalid(inner, asText);
      if (wrong.length === 0) return [];
      return fc.constantFrom(...wrong).map((bad) => (value: object) => ({ value: { ...value, [field]: bad }, field }));
    }),
  ];
  return fc.tuple(valid(schema), fc.oneof(...breakings)).map(([value, breaks]) => breaks(value as object));
}

function validOfType(type: string, schema: Schema): fc.Arbitrary<unknown> {
  switch (type) {
    case 'string':
      return validString(schema);
    case 'integer':
      return fc.integer(numberRange(schema));
    case 'number':
      // Few decimals, as prices have.
      return fc.integer({ min: 1, max: 99_999 }).map((cents) => Math.min(cents / 100, schema.maximum ?? cents));
    case 'boolean':
      return fc.boolean();
    case 'array': {
      const { minItems = 0, maxItems = SIZE_MAX, items = {} } = schema;
      const size = { minLength: minItems, maxLength: Math.min(maxItems, SIZE_MAX) };
      // A list of names from a set names each once.
      return items.enum === undefined ? fc.array(valid(items), size) : fc.uniqueArray(valid(items), size);
    }
    case 'object':
      return validObject(schema);
    default:
      return fc.constant(null);
  }
}

function validString({ format, minLength = 0, maxLength = Infinity, ...schema }: Schema): fc.Arbitrary<string> {
  if (format === 'date-time')
    return fc
      .date({ min: new Date(0), max: new Date('9999-12-31'), noInvalidDate: true })
      .map((date) => date.toISOString());
  if (format === 'uuid') return fc.uuid();
  // All of ours lead out over https.
  if (format === 'uri') return fc.webUrl({ validSchemes: ['https'], withQueryParameters: true });
  const fits = (text: string): boolean => text.length >= minLength && text.length <= maxLength;
  const [first, ...others] = [schema, ...(schema.allOf ?? [])].flatMap(({ pattern = [] }) => pattern);
  if (first === undefined) return fc.string({ minLength, maxLength: Math.min(maxLength, SIZE_MAX + minLength) });
  const matches = (text: string): boolean => others.every((pattern) => new RegExp(pattern, 'u').test(text));
  return fc.stringMatching(new RegExp(first, 'u')).filter((text) => fits(text) && matches(text));
}

function validObject({
  properties,
  required = [],
  propertyNames,
  additionalProperties,
}: Schema): fc.Arbitrary<unknown> {
  if (properties === undefined && typeof additionalProperties === 'object') {
    return fc.dictionary(validString(propertyNames ?? {}), valid(additionalProperties), { maxKeys: 4 });
  }
  const entries = Object.entries(properties ?? {}).map(([name, schema]): [string, fc.Arbitrary<unknown>] => [
    name,
    valid(schema),
  ]);
  return fc.record<Record<string, unknown>>(Object.fromEntries(entries), { requiredKeys: [...required] });
}

/** Values of the wrong type, and those just past each bound. */
function invalid(schema: Schema, asText: boolean): unknown[] {
  const wrongTypes = asText ? ['not a number', 0.5] : [{ a: 1 }, [[]], true, 'not a number', 0.5];
  const isText = asText && [schema.type].flat().includes('string');
  return [
    ...(isText ? [] : wrongTypes.filter((value) => !isOfType(value, schema))),
    ...(schema.minimum === undefined ? [] : [schema.minimum - 1]),
    ...(schema.maximum === undefined ? [] : [schema.maximum + 1]),
    ...(schema.exclusiveMinimum === undefined ? [] : [schema.exclusiveMinimum]),
    ...((schema.minLength ?? 0) > 0 ? [''] : []),
    ...(schema.maxLength === undefined ? [] : ['x'.repeat(schema.maxLength + 1)]),
    ...(schema.enum === undefined ? [] : ['none of these']),
    ...(schema.format === undefined ? [] : ['no such format']),
    ...(schema.type === 'string' ? ['a\u0000b'] : []),
    ...((schema.minItems ?? 0) > 0 ? [[]] : []),
  ];
}

function isOfType(value: unknown, schema: Schema): boolean {
  if (schema.anyOf !== undefined) return schema.anyOf.some((branch) => isOfType(value, branch));
  const types = [schema.type ?? []].flat();
  if (Array.isArray(value)) return types.includes('array') && schema.items?.type === 'array';
  if (typeof value === 'number') return types.includes('number');
  return typeof value === 'object' ? false : types.includes(typeof value);
}

function numberRange({ minimum, maximum, exclusiveMinimum }: Schema): { min: number; max: number } {
  const min = minimum ?? (exclusiveMinimum === undefined ? -1000 : exclusiveMinimum + 1);
  return { min: Math.max(min, -1e9), max: Math.min(maximum ?? 1000, 1e9) };
}

function without(value: object, field: string): object {
  return Object.fromEntries(Object.entries(value).filter(([name]) => name !== field));
}
