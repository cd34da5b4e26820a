// Renders the JSON Schemas of the OpenAPI document as tables of fields.
import { z } from 'zod';
import { code, escapeHtml, prose } from './docs-text.ts';

const JsonSchema = z.looseObject({
  $ref: z.string().optional(),
  type: z.union([z.string(), z.array(z.string())]).optional(),
  description: z.string().optional(),
  format: z.string().optional(),
  pattern: z.string().optional(),
  const: z.unknown().optional(),
  default: z.unknown().optional(),
  enum: z.array(z.unknown()).optional(),
  required: z.array(z.string()).default([]),
  get properties() {
    return z.record(z.string(), JsonSchema).optional();
  },
  get items() {
    return JsonSchema.optional();
  },
  get anyOf() {
    return z.array(JsonSchema).optional();
  },
  get additionalProperties() {
    return z.union([z.boolean(), JsonSchema]).optional();
  },
});
export type JsonSchema = z.infer<typeof JsonSchema>;

/** Parses a schema. @throws ZodError if it is not a JSON Schema of the kinds that our routes use */
export function readSchema(value: unknown): JsonSchema {
  return JsonSchema.parse(value);
}

/** A table of the fields of an object, nested ones as `parent.child`. A schema that is not an object becomes a single line. */
export function schemaHtml(schema: JsonSchema): string {
  const rows = fieldRows(schema, '');
  if (rows.length === 0) return `<p>${typeHtml(schema)}</p>`;
  return `<table><thead><tr><th>Field<th>Type<th>Meaning</thead><tbody>${rows.join('')}</tbody></table>`;
}

/** One table row for a parameter or field. */
export function fieldRow(
  name: string,
  schema: JsonSchema,
  options: { required: boolean; description: string },
): string {
  const { required, description } = options;
  const must = required ? '<br><span class="required">required</span>' : '';
  const fallback = schema.default === undefined ? '' : `<p>Default: ${code(JSON.stringify(schema.default))}</p>`;
  return `<tr><td>${code(name)}${must}<td>${typeHtml(schema)}<td>${prose(description)}${fallback}</tr>`;
}

function fieldRows(schema: JsonSchema, prefix: string): string[] {
  return Object.entries(schema.properties ?? {}).flatMap(([name, field]) => {
    const required = schema.required.includes(name);
    const inner = nested(field);
    return [
      fieldRow(prefix + name, field, { required, description: field.description ?? '' }),
      ...(inner === undefined ? [] : fieldRows(inner.schema, `${prefix}${name}${inner.mark}.`)),
    ];
  });
}

/** The inline object inside a field, if there is one. An object that is referred to has its own table. */
function nested(field: JsonSchema): { schema: JsonSchema; mark: string } | undefined {
  if (field.properties !== undefined) return { schema: field, mark: '' };
  if (field.items?.properties !== undefined) return { schema: field.items, mark: '[]' };
  return field.anyOf?.map(nested).find((branch) => branch !== undefined);
}

function typeHtml(schema: JsonSchema): string {
  const name = /^#\/components\/schemas\/(\w+)$/.exec(schema.$ref ?? '')?.[1];
  if (name !== undefined) return `<a href="#schema-${name}">${name}</a>`;
  if (schema.anyOf !== undefined) return schema.anyOf.map(typeHtml).join(' or ');
  if (schema.enum !== undefined) return schema.enum.map((value) => code(String(value))).join(' ');
  if (schema.const !== undefined) return code(JSON.stringify(schema.const));
  if (schema.items !== undefined) return `array of ${typeHtml(schema.items)}${bounds(schema)}`;
  if (typeof schema.additionalProperties === 'object') {
    return `object of ${typeHtml(schema.additionalProperties)} by name`;
  }
  const format = schema.format === undefined ? '' : ` (${escapeHtml(schema.format)})`;
  const types = [schema.type ?? 'any'].flat().join(' or ');
  return `${escapeHtml(types)}${format}${bounds(schema)}`;
}

function bounds(schema: JsonSchema): string {
  const words = [
    range(schema['minimum'], schema['maximum'], ''),
    typeof schema['exclusiveMinimum'] === 'number' ? `more than ${schema['exclusiveMinimum']}` : undefined,
    range(schema['minLength'], schema['maxLength'], ' characters'),
    range(schema['minItems'], schema['maxItems'], ' entries'),
  ].filter((part) => part !== undefined);
  return words.length === 0 ? '' : `<br><small>${words.join(', ')}</small>`;
}

function range(least: unknown, most: unknown, unit: string): string | undefined {
  const [from, to] = [shownBound(least), shownBound(most)];
  if (from !== undefined && to !== undefined) return `${from} to ${to}${unit}`;
  if (from !== undefined) return `at least ${from}${unit}`;
  return to === undefined ? undefined : `at most ${to}${unit}`;
}

/** Whole numbers without their own bound carry the limits of JavaScript integers, which are noise for a reader. */
function shownBound(bound: unknown): number | undefined {
  return typeof bound === 'number' && Math.abs(bound) !== Number.MAX_SAFE_INTEGER ? bound : undefined;
}
