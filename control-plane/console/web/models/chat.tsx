// A conversation with a model: its answers while they arrive, their speed, and their cost.
import type { Model } from '../../../../shared/api/model.ts';
import { count, quoted } from '../core/format.ts';
import { useTyped } from '../core/typed.ts';
import { type Same, SameAs } from '../parts/command.tsx';
import { Field, TextField } from '../parts/forms.tsx';
import { Card, Problem } from '../parts/layout.tsx';
import { Segments } from '../parts/choosing.tsx';
import { type Question, tokensPerSecond } from './ask.ts';
import { hasEconomy, pricesOf, type Tier } from './prices.ts';
import { questionOf, type Said, type Talk, type Turn, useTalk } from './talk.ts';

const TIERS: readonly (readonly [Tier, string])[] = [
  ['serverless', 'Serverless'],
  ['economy', 'Economy'],
];

interface ChatDraft extends Pick<Said, 'system' | 'message' | 'temperature' | 'maxTokens'> {
  tier: Tier;
}

const EMPTY_DRAFT: ChatDraft = { tier: 'serverless', system: '', message: '', temperature: '', maxTokens: '' };

export function Chat({ model }: { model: Model }) {
  const [draft, setDraft] = useTyped(`chat/${model.id}`, EMPTY_DRAFT);
  const change = (part: Partial<ChatDraft>): void => setDraft((before) => ({ ...before, ...part }));
  const giveBack = (question: string): void =>
    setDraft((before) => (before.message === '' ? { ...before, message: question } : before));
  const talk = useTalk(model.id, giveBack);
  const { tier, system, message, maxTokens } = draft;
  const id = tier === 'economy' ? `${model.id}:economy` : model.id;
  const question = questionOf({ ...draft, id, turns: talk.turns });
  const send = async (): Promise<void> => {
    if (message.trim() === '' || talk.isBusy) return;
    change({ message: '' });
    const isAnswered = await talk.ask(message, question);
    if (!isAnswered) giveBack(message);
  };
  return (
    <Card
      title="Playground"
      note={<code>{id}</code>}
      actions={
        hasEconomy(model) && (
          <Segments label="Tier" value={tier} options={TIERS} onValue={(next) => change({ tier: next })} />
        )
      }
      footer={<SameAs isLong {...sameOf(question, { system, message, maxTokens })} />}
    >
      {talk.turns.map((turn, index) => (
        <TurnView key={index} turn={turn} />
      ))}
      <form
        class="pad stack"
        onSubmit={(event) => {
          event.preventDefault();
          void send();
        }}
      >
        {talk.error !== undefined && <Problem error={talk.error} />}
        {talk.turns.length === 0 && (
          <Field label="System, optional" value={system} onValue={(next) => change({ system: next })} />
        )}
        <TextField
          label="Message"
          value={message}
          onValue={(next) => change({ message: next })}
          placeholder="Ask something"
          onSend={() => void send()}
        />
        <Limits draft={draft} change={change} ruleOf={talk.ruleOf} />
        <Buttons talk={talk} isEmpty={message.trim() === ''} prices={pricesOf(model, tier).join(', ')} />
      </form>
    </Card>
  );
}

/** `prices`: in words, of a million tokens. */
function Buttons({ talk, isEmpty, prices }: { talk: Talk; isEmpty: boolean; prices: string }) {
  return (
    <div class="row">
      {talk.isBusy ? (
        <button class="btn" type="button" onClick={talk.stop}>
          Stop
        </button>
      ) : (
        <button class="btn pri" type="submit" disabled={isEmpty}>
          Send
        </button>
      )}
      {talk.turns.length > 0 && !talk.isBusy && (
        <button class="btn" type="button" onClick={talk.clear}>
          Begin anew
        </button>
      )}
      <span class="small quiet">{prices} for a million tokens</span>
    </div>
  );
}

interface LimitsProps extends Pick<Talk, 'ruleOf'> {
  draft: ChatDraft;
  change(part: Partial<ChatDraft>): void;
}

function Limits({ draft: { temperature, maxTokens }, change, ruleOf }: LimitsProps) {
  return (
    <div class="grid">
      <Field
        label="Temperature"
        type="number"
        min="0"
        max="2"
        step="0.1"
        placeholder="of the model"
        value={temperature}
        onValue={(next) => change({ temperature: next })}
        rule={ruleOf('temperature')}
      />
      <Field
        label="Max tokens"
        type="number"
        min="1"
        placeholder="of the model"
        value={maxTokens}
        onValue={(next) => change({ maxTokens: next })}
        rule={ruleOf('max_tokens')}
      />
    </div>
  );
}

function TurnView({ turn }: { turn: Turn }) {
  const { question, answer, isOver } = turn;
  const isStopped = isOver && answer?.finish === undefined;
  return (
    <>
      <div class="turn">
        <h3>You</h3>
        <p class="said">{question}</p>
      </div>
      <div class="turn" aria-busy={!isOver}>
        <h3>Answer</h3>
        <p class="said">{answer?.text ?? (isOver ? 'none' : 'Waiting for the first token…')}</p>
        {isStopped && <p class="small quiet">It was stopped before its end.</p>}
        {answer?.finish === 'length' && <p class="small quiet">It ended at the most tokens that were allowed.</p>}
      </div>
      <Stats turn={turn} />
      <span class="sr" role="status">
        {statusOf({ isOver, isStopped })}
      </span>
    </>
  );
}

function statusOf({ isOver, isStopped }: { isOver: boolean; isStopped: boolean }): string {
  if (!isOver) return '';
  return isStopped ? 'The answer was stopped' : 'The answer is complete';
}

/** What was measured, and what the receipt says. An answer that was stopped has its tokens from the receipt. */
function Stats({ turn: { answer, cost, usage: charged } }: { turn: Turn }) {
  if (answer === undefined && cost === undefined) return null;
  const speed = answer === undefined ? undefined : tokensPerSecond(answer);
  const usage = answer?.usage ?? charged;
  return (
    <dl class="stats">
      <Stat label="First token" value={answer?.firstMs === undefined ? '–' : `${Math.round(answer.firstMs)} ms`} />
      <Stat label="Speed" value={speed === undefined ? '–' : `${Math.round(speed)} tokens/s`} />
      <Stat
        label="Tokens in + out"
        value={usage === undefined ? '–' : `${count(usage.prompt_tokens)} + ${count(usage.completion_tokens)}`}
      />
      <Stat label="Cost" value={cost ?? '–'} />
    </dl>
  );
}

function Stat({ label, value }: { label: string; value: string }) {
  return (
    <div>
      <dt>{label}</dt>
      <dd>{value}</dd>
    </div>
  );
}

/** The same request as commands. `svc chat` has no conversation and no temperature, so requests with either use `svc api`. */
function sameOf(question: Question, said: Pick<Said, 'system' | 'message' | 'maxTokens'>): Same {
  const curl = { method: 'POST', path: '/v1/chat/completions', body: question } as const;
  const isPlain = question.temperature === undefined && question.messages.length === (said.system === '' ? 1 : 2);
  if (!isPlain) return { cli: `svc api POST /chat/completions --body ${quoted(JSON.stringify(question))}`, curl };
  const words = [
    'svc chat',
    quoted(question.model),
    ...(said.system === '' ? [] : [`--system ${quoted(said.system)}`]),
    ...(said.maxTokens === '' ? [] : [`--max-tokens ${said.maxTokens}`]),
    quoted(said.message === '' ? 'QUESTION' : said.message),
  ];
  return { cli: words.join(' '), curl };
}
