// What a model server says while it streams an answer, for fake-upstream.ts.

const chunk = (choice: object, more: object = {}): object => ({
  id: 'cmpl-of-the-server',
  object: 'chat.completion.chunk',
  created: 1,
  model: 'upstream/secret-name',
  system_fingerprint: 'b1-secret',
  choices: [{ index: 0, logprobs: null, ...choice }],
  ...more,
});

/** llama.cpp begins with a content of null. */
export const BEGIN = chunk({ delta: { role: 'assistant', content: null }, finish_reason: null });
export const say = (content: string, more: object = {}): object =>
  chunk({ delta: { content }, finish_reason: null }, more);
export const stop = (reason = 'stop'): object => chunk({ delta: {}, finish_reason: reason });
export const usage = (prompt: number, completion: number): object => ({
  ...chunk({}),
  choices: [],
  usage: { prompt_tokens: prompt, completion_tokens: completion, total_tokens: prompt + completion },
});
export const DONE = 'data: [DONE]\n\n';

/** `Hello there.`: 6 tokens of prompt, 3 of answer. */
export const HELLO_EVENTS = [BEGIN, say('Hello'), say(' there.'), stop(), usage(6, 3), DONE];

/** The data of each event; `[DONE]` as it is. Lines of comments are dropped. */
export function dataOf(body: string): unknown[] {
  const blocks = body.replaceAll(/^:.*\n/gm, '').split('\n\n');
  return blocks
    .filter((block) => block !== '')
    .map((block) => {
      if (!/^data: .*$/.test(block)) throw new Error(`no event of one line: ${block}`);
      const data = block.slice('data: '.length);
      return data === '[DONE]' ? data : (JSON.parse(data) as unknown);
    });
}
