// The short check of common chat requests lets nothing through that the schema would refuse or change.
import fc from 'fast-check';
import { expect, test } from 'vitest';
import { ChatRequest, isPlainChat } from '../../shared/api/chat.ts';

const PLAIN = {
  model: 'small',
  messages: [
    { role: 'system', content: '' },
    { role: 'user', content: 'hi' },
  ],
  stream: true,
  stream_options: { include_usage: true },
  temperature: 2,
  max_tokens: 1,
};

/** Values of every kind that a member may have by right or by mistake. */
const anything = fc.oneof(
  fc.constantFrom(
    null,
    '',
    'user',
    'developer',
    'x'.repeat(256),
    'x'.repeat(257),
    0,
    1,
    2,
    2.5,
    -1,
    1e300,
    true,
    [],
    {},
  ),
  fc.constantFrom(PLAIN.messages, [{ role: 'user' }], [{ role: 'user', content: 'x', name: 'y' }], [null], ['x'], 'xy'),
  fc.constantFrom(
    { include_usage: false },
    { include_usage: 1 },
    { include_obfuscation: false },
    { role: 'tool', content: 'x' },
  ),
  fc.constantFrom([{ role: 'developer', content: 'x' }], [{ role: 'user', content: [{ type: 'text', text: 'x' }] }]),
);

test('a plain request is one that the schema leaves as it is', () => {
  expect(isPlainChat(PLAIN)).toBe(true);
  const member = fc.constantFrom(...Object.keys(PLAIN), 'n', 'tools', 'user', 'top_p', '__proto__');
  const change = fc.record({ member, value: anything, isRemoved: fc.boolean() });
  fc.assert(
    fc.property(fc.array(change, { maxLength: 3 }), (changes) => {
      const body: Record<string, unknown> = structuredClone(PLAIN);
      for (const { member: name, value, isRemoved } of changes) {
        if (isRemoved) delete body[name];
        else body[name] = value;
      }
      if (!isPlainChat(body)) return;
      expect(ChatRequest.parse(body)).toEqual(body);
    }),
    { numRuns: 3_000 },
  );
});

test.each([[null], [[]], ['x'], [{}], [{ model: 'small', messages: [] }], [[PLAIN]]])('%j is not plain', (body) => {
  expect(isPlainChat(body)).toBe(false);
});
