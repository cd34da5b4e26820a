// Questions for spot checks. They look like requests of customers, so that a host cannot tell them apart and answer them alone honestly. No text is
// fixed: a question is put together from a task, its data and its wording, all at random.
//
// Most tasks have one short answer, and the wording asks for that answer alone. Two honest servers may choose different tokens where two are nearly
// tied, and a short answer has few tokens. But a smaller model may know a short answer too. So a few tasks are free, such as a slogan: another model
// nearly always begins those with other words.
import type { Rng } from '../../../shared/rng.ts';

export interface Question {
  prompt: string;
  tokensMax: number;
}

/** Limits of answers as clients set them. A fixed small limit would give the question away. */
const TOKENS_MAX = [32, 50, 64, 80, 100, 120, 128, 150, 200, 256];
const NAMES =
  'Anna Ben Carla David Elena Farid Grace Hiroshi Ines Jonas Kofi Lucia Mei Nadia Oscar Priya Ruth Sven'.split(' ');
const CITIES = 'Lisbon Oslo Nairobi Toronto Lima Kyoto Cairo Vienna Austin Dublin Prague Seoul Hanoi Perth'.split(' ');
const THINGS =
  'lamp,desk chair,phone case,backpack,kettle,bike helmet,keyboard,yoga mat,blender,rain jacket,notebook,tent,mug,desk fan'.split(
    ',',
  );
const FRUITS =
  'apple banana cherry grape kiwi lemon mango orange papaya peach pear plum quince fig melon apricot'.split(' ');
const LANGUAGES = ['French', 'Spanish', 'German', 'Italian', 'Portuguese', 'Dutch'];
const SENTENCES = [
  'Where is the train station?',
  'The shop is closed today.',
  'I would like a cup of coffee.',
  'My brother lives in a small house.',
  'It is cold outside.',
  'The book is on the table.',
  'We are going to the beach tomorrow.',
  'The dog sleeps under the tree.',
];
const PRAISE = ['works perfectly', 'is worth every cent', 'arrived early and looks great', 'is the best I ever had'];
const BLAME = ['broke after two days', 'is a waste of money', 'arrived damaged', 'never worked and nobody answers'];
const MONTHS = 'January March April May June August September October November'.split(' ');
const GREETINGS = ['', '', '', 'Hi! ', 'Hello, ', 'Hey, ', 'Quick question: ', 'Good morning. '];
const ENDS = ['', '', ' Thanks!', ' Thank you.', ' Thx'];
const ONLY = [
  (what: string) => `Answer only with the ${what}.`,
  (what: string) => `Just the ${what}, please.`,
  (what: string) => `Reply with nothing but the ${what}.`,
  (what: string) => `I only need the ${what}, no explanation.`,
  (what: string) => `Output the ${what} and nothing else.`,
];

/** Draws from lists and ranges. */
interface Draw {
  one<T>(items: readonly T[]): T;
  some<T>(items: readonly T[], count: number): T[];
  between(least: number, most: number): number;
}

/** What is asked, and the name of the answer. */
interface Task {
  text: string;
  answer: string;
}

const TASKS: readonly ((draw: Draw) => Task)[] = [
  ({ one }) => ({
    text: one([
      `Translate into ${one(LANGUAGES)}: "${one(SENTENCES)}"`,
      `How do you say "${one(SENTENCES)}" in ${one(LANGUAGES)}?`,
    ]),
    answer: 'translation',
  }),
  ({ one, between }) => ({
    text: one([
      `What is ${between(12, 99)} times ${between(3, 29)}?`,
      `Calculate ${between(100, 999)} + ${between(100, 999)} - ${between(10, 99)}.`,
      `${one(NAMES)} buys ${between(3, 19)} ${one(THINGS)}s for ${between(4, 60)} dollars each. What is the total?`,
    ]),
    answer: 'number',
  }),
  ({ one, between }) => ({
    text: `${one(['From this mail', 'Here is a message of a customer', 'Read this'])}: "Dear team, my ${one(THINGS)} has not arrived in ${one(CITIES)} yet. The order number is ${between(10_000, 999_999)}, placed on ${one(MONTHS)} ${between(1, 28)}. Best regards, ${one(NAMES)}" ${one(['What is the order number?', 'Extract the order number.'])}`,
    answer: 'order number',
  }),
  ({ one, some, between }) => ({
    text: `${one(['Sort alphabetically', 'Put these in alphabetical order', 'Order this list from A to Z'])}: ${some(FRUITS, between(4, 7)).join(', ')}`,
    answer: 'sorted list, separated by commas',
  }),
  ({ one, some, between }) => ({
    text: `${one(['Which is the largest of these numbers', 'Find the biggest number', 'Which of these is greatest'])}: ${some(
      Array.from({ length: 90 }, (_, index) => between(1, 90) * 100 + index),
      between(4, 8),
    ).join(', ')}`,
    answer: 'number',
  }),
  ({ one, between }) => ({
    text: `Convert to JSON with the keys name, age and city: ${one(NAMES)} is ${between(18, 80)} years old and lives in ${one(CITIES)}.`,
    answer: 'JSON on one line',
  }),
  ({ one }) => ({
    text: `${one(['Is this review positive or negative?', 'Classify the sentiment as positive or negative:', 'Positive or negative?'])} "The ${one(THINGS)} ${one([one(PRAISE), one(BLAME)])}."`,
    answer: one(['label', 'word']),
  }),
  ({ one, between }) => ({
    text: `${one(['How many', 'Tell me how many'])} ${one([
      `minutes are ${between(2, 40)} hours?`,
      `days are ${between(2, 60)} weeks?`,
      `grams are ${between(2, 90)} kilograms?`,
      `centimetres are ${between(2, 90)} metres?`,
    ])}`,
    answer: 'number',
  }),
  ({ one, some, between }) => ({
    text: one([
      `What does this Python code print? print(${between(3, 30)} * ${between(3, 30)} + ${between(1, 50)})`,
      `What is the output of this JavaScript? console.log([${some(FRUITS, between(2, 4))
        .map((fruit) => `'${fruit}'`)
        .join(', ')}].join('-'))`,
    ]),
    answer: 'printed text',
  }),
  ({ one }) => ({
    text: `${one(['Write in capital letters', 'Convert to uppercase', 'Make this all caps'])}: ${one(NAMES)} sold a ${one(THINGS)} in ${one(CITIES)}.`,
    answer: 'text',
  }),
  ({ one }) => ({
    text: `${one(['Write one sentence that advertises', 'I need a slogan for', 'Describe in one sentence'])} a ${one(THINGS)} from ${one(CITIES)}.`,
    answer: 'sentence',
  }),
  ({ one, some }) => ({
    text: `${one(['Suggest a title for a recipe with', 'Name a dessert made of', 'Give me a name for a smoothie with'])} ${some(FRUITS, 3).join(', ')}.`,
    answer: one(['title', 'name']),
  }),
];

export function newQuestion(rng: Rng): Question {
  const between = (least: number, most: number): number => least + Math.floor(rng.float() * (most - least + 1));
  const some = <T>(items: readonly T[], count: number): T[] =>
    items
      .map((item) => ({ item, at: rng.float() }))
      .toSorted((a, b) => a.at - b.at)
      .slice(0, count)
      .map(({ item }) => item);
  const one = <T>(items: readonly T[]): T => items[between(0, items.length - 1)] ?? missing();
  const { text, answer } = one(TASKS)({ one, some, between });
  const only = one(ONLY)(answer);
  const [first, second] = one([
    [text, only],
    [text, only],
    [only, text],
  ]);
  return {
    prompt: `${one(GREETINGS)}${first}${one([' ', '\n', '\n\n'])}${second}${one(ENDS)}`,
    tokensMax: one(TOKENS_MAX),
  };
}

function missing(): never {
  throw new Error('a question is drawn from an empty list');
}
