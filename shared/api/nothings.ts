// Values that have no effect: clients send them by habit. A request is read as if they were not there. Every other value that is not
// supported is refused, and the refusal names the member. The OpenAPI document and the manual show these lists.

/** Path of a member -> its values that have no effect. */
export type Nothings = Readonly<Record<string, readonly unknown[]>>;

export const CHAT_NOTHINGS: Nothings = {
  n: [1],
  tools: [[]],
  tool_choice: ['none', 'auto'],
  parallel_tool_calls: [true, false],
  functions: [[]],
  function_call: ['none', 'auto'],
  response_format: [{ type: 'text' }],
  modalities: [['text']],
  logprobs: [false],
  top_logprobs: [0],
  logit_bias: [{}],
  store: [false],
  service_tier: ['auto', 'default'],
  'stream_options.include_obfuscation': [false],
  'messages[].annotations': [[]],
  'messages[].tool_calls': [[]],
};

/**
 * Values that have no effect for a model without the parameter, because they describe what it does anyway. If a model has the parameter,
 * its server gets the value, because the server may have other defaults.
 */
export const CHAT_DEFAULTS: Nothings = { top_p: [1], presence_penalty: [0], frequency_penalty: [0] };

/** Members that must have a value. For every other member, null has no effect. The lists do not repeat this. */
const REQUIRED: readonly string[] = ['model', 'messages', 'messages[].role', 'messages[].content', 'input', 'prompt'];

/** The lists as text for people, with entries like `n`: 1. */
export function nothingsText(nothings: Nothings): string {
  const entries = Object.entries(nothings).map(
    ([member, values]) => `\`${member}\`: ${values.map((value) => `\`${JSON.stringify(value)}\``).join(' or ')}`,
  );
  return [...entries, 'any member that is not required: `null`'].map((entry) => `- ${entry}`).join('\n');
}

/** The request without values that have no effect. A body that is not an object stays unchanged. */
export function withoutNothings(body: unknown, nothings: Nothings, path = ''): unknown {
  if (typeof body !== 'object' || body === null || Array.isArray(body)) return body;
  const asked = Object.entries(body).filter(([name, value]) => !isNothing(`${path}${name}`, value, nothings));
  return Object.fromEntries(
    asked.map(([name, value]): [string, unknown] => {
      // Messages are cleaned too: clients send an earlier answer back unchanged, as a message of the next request.
      if (name === 'messages' && Array.isArray(value))
        return [name, value.map((message: unknown) => withoutNothings(message, nothings, 'messages[].'))];
      const inner = `${path}${name}.`;
      const hasMore = Object.keys(nothings).some((member) => member.startsWith(inner));
      return [name, hasMore ? withoutNothings(value, nothings, inner) : value];
    }),
  );
}

/** Whether the value has no effect. Null has none, unless the member is required. */
export function isNothing(member: string, value: unknown, nothings: Nothings): boolean {
  if (value === null) return !REQUIRED.includes(member);
  return Object.hasOwn(nothings, member) && nothings[member]?.some((nothing) => isSame(nothing, value)) === true;
}

/** Compares a listed value with one that a stranger has sent, no deeper than the list goes. */
function isSame(nothing: unknown, value: unknown): boolean {
  if (typeof nothing !== 'object' || nothing === null) return nothing === value;
  if (typeof value !== 'object' || value === null || Array.isArray(nothing) !== Array.isArray(value)) return false;
  const [known, sent] = [Object.entries(nothing), Object.keys(value)];
  return known.length === sent.length && known.every(([name, inner]) => isSame(inner, Reflect.get(value, name)));
}
