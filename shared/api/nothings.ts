// Values that ask for nothing: clients send them by habit, and a request is read as if they were not there. Whatever else is not supported
// is refused by its name. The OpenAPI document and the manual show these lists.

/** Member, by its path -> the values that ask for nothing. */
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
 * Values that ask a model without the parameter for what it does anyway. A model that takes the parameter gets them, because its server may
 * have other defaults.
 */
export const CHAT_DEFAULTS: Nothings = { top_p: [1], presence_penalty: [0], frequency_penalty: [0] };

/** What the lists do not say again for each member: null asks for nothing wherever a request can do without the member. */
const REQUIRED: readonly string[] = ['model', 'messages', 'messages[].role', 'messages[].content', 'input', 'prompt'];

/** The values as people read them: `n`: 1. */
export function nothingsText(nothings: Nothings): string {
  const entries = Object.entries(nothings).map(
    ([member, values]) => `\`${member}\`: ${values.map((value) => `\`${JSON.stringify(value)}\``).join(' or ')}`,
  );
  return [...entries, 'any member that is not required: `null`'].map((entry) => `- ${entry}`).join('\n');
}

/** The request without them. What is no object stays as it is. */
export function withoutNothings(body: unknown, nothings: Nothings, path = ''): unknown {
  if (typeof body !== 'object' || body === null || Array.isArray(body)) return body;
  const asked = Object.entries(body).filter(([name, value]) => !isNothing(`${path}${name}`, value, nothings));
  return Object.fromEntries(
    asked.map(([name, value]): [string, unknown] => {
      // Clients send an answer back as they got it.
      if (name === 'messages' && Array.isArray(value))
        return [name, value.map((message: unknown) => withoutNothings(message, nothings, 'messages[].'))];
      const inner = `${path}${name}.`;
      const hasMore = Object.keys(nothings).some((member) => member.startsWith(inner));
      return [name, hasMore ? withoutNothings(value, nothings, inner) : value];
    }),
  );
}

/** True also for null, unless the member is required. */
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
