// Spot checks: two replicas of a model on different machines are asked the same. A host that runs another model than it should, or changes answers,
// is found because it answers otherwise than others.
//
// The question is one of our own, never one of a customer, but looks like one (`questions.ts`). Two answers that differ do not say who is right: a
// third server decides, first one of the operator's own, then another replica. Replicas of one supplier have one voice together, so a supplier with
// many machines outvotes nobody. Real engines may differ at a near tie between two tokens, so a machine is accused only after it alone answered
// otherwise twice in a row.
import type { Rng } from '../../../shared/rng.ts';
import { openRowFailures } from '../../base/db/row-failures.ts';
import { orgOfMachine } from '../../fleet/supply/owners.ts';
import type { Supply } from '../../fleet/supply/supply.ts';
import type { Upstream } from '../catalog/models.ts';
import { OutboundError } from '../../base/outbound/policy.ts';
import { runsSame, type Tier } from './pools.ts';
import { newQuestion, type Question } from './questions.ts';
import { completionOf } from './readiness.ts';
import { NOTHING_TO_NOTE, serverOf } from './servers.ts';
import { failReplica, type StepDeps } from './steps.ts';
import * as store from './store.ts';

export interface ComparisonDeps extends StepDeps {
  supply: Pick<Supply, 'accuse'>;
  counts: StepDeps['counts'] & DisagreementCounts;
}

/** Counts for the operator's metrics. */
export interface DisagreementCounts {
  disagreed(poolId: string): void;
}

/** Time between two comparisons of a pool. */
const COMPARE_MS = 10 * 60_000;
/** Only the beginning of an answer is compared: the longer it is, the likelier is a near tie. */
const COMPARED_CHARS = 60;
const DISAGREEMENTS_MAX = 2;

/** Compares two replicas of each pool for which it is time. */
export async function compareReplicas(
  tiers: readonly Tier[],
  signal: AbortSignal,
  deps: ComparisonDeps,
): Promise<void> {
  const failures = openRowFailures();
  for (const tier of tiers) {
    if (tier.model.modality !== 'chat' || signal.aborted) continue;
    await failures.note(`the replicas of ${tier.poolId} could not be compared`, compareIfDue(tier, signal, deps));
  }
  failures.throwAll();
}

async function compareIfDue(tier: Tier, signal: AbortSignal, deps: ComparisonDeps): Promise<void> {
  const { db, clock } = deps;
  const pool = await store.findPool(db.read, tier.poolId);
  const nowMs = clock.now();
  if (pool === undefined || nowMs < pool.compared_ms + COMPARE_MS) return;
  if (await db.tx('replicas.compare', (tx) => store.claimComparison(tx, pool, nowMs)))
    await comparePool(tier, signal, deps);
}

/** A server and the text of its answer. The text is undefined if the server did not answer. */
interface Answer {
  server: Upstream;
  replica: store.ReplicaRow | undefined;
  text: string | undefined;
}

async function comparePool(tier: Tier, signal: AbortSignal, deps: ComparisonDeps): Promise<void> {
  const { db, rng, log, counts } = deps;
  const { poolId, model, deployment } = tier;
  // While the pool is updated, replicas of the former deployment answer otherwise.
  const ready = (await store.liveReplicas(db.read, poolId)).filter(
    (row) => row.state === 'ready' && runsSame(row.deployment, deployment),
  );
  const [own] = (poolId === model.id ? model.upstreams : model.economy?.upstreams) ?? [];
  const { pair, third } = await chosen(shuffled(ready, rng), own !== undefined, deps);
  if (pair === undefined) return;
  const question = newQuestion(rng);
  const asking = { question, signal };
  const ask = (replica: store.ReplicaRow): Promise<Answer> => {
    const server = serverOf(replica, { ...deps, ...NOTHING_TO_NOTE });
    return answerOf(server, replica, asking, deps);
  };
  const answers = await Promise.all(pair.map(ask));
  const [a, b] = answers;
  if (a?.text === undefined || b?.text === undefined) return;
  if (a.text === b.text) return clear(answers, deps);
  counts.disagreed(poolId);
  const judges = [
    ...(own === undefined ? [] : [() => answerOf(own, undefined, asking, deps)]),
    ...(third === undefined ? [] : [() => ask(third)]),
  ];
  const alone = await aloneOf([a, b], judges);
  if (alone?.replica === undefined) {
    log.error(
      { model: poolId, machine_ids: pair.map((replica) => replica.machine_id) },
      'two replicas of a model answer the same question differently, and no third server could decide: run a replica of a third supplier, or add an upstream',
    );
    return;
  }
  await noteOdd(alone.replica, deps);
  await clear(
    [a, b].filter((answer) => answer !== alone),
    deps,
  );
}

/** Who is compared: two replicas of different suppliers, and a third one that may decide. */
interface Chosen {
  /** Undefined if there are no two replicas that can be compared. */
  pair: [store.ReplicaRow, store.ReplicaRow] | undefined;
  third: store.ReplicaRow | undefined;
}

/** Two machines of one supplier are compared only if a server of the operator's own can decide. */
async function chosen(ready: readonly store.ReplicaRow[], hasOwn: boolean, { db }: ComparisonDeps): Promise<Chosen> {
  const suppliers = await Promise.all(ready.map(({ machine_id: id }) => orgOfMachine(db.read, id ?? '')));
  const voices = oneOf(ready, (_, index) => suppliers[index]);
  const [first, second] = voices.length > 1 || !hasOwn ? voices : oneOf(ready, ({ machine_id: id }) => id);
  const pair: Chosen['pair'] = first === undefined || second === undefined ? undefined : [first, second];
  return { pair, third: voices[2] };
}

/** The answer that differs from the other one and from that of a judge. Undefined if no judge gives one of the two answers. */
async function aloneOf(
  [a, b]: [Answer, Answer],
  judges: readonly (() => Promise<Answer>)[],
): Promise<Answer | undefined> {
  for (const judge of judges) {
    const { text } = await judge();
    if (text === a.text) return b;
    if (text === b.text) return a;
  }
  return undefined;
}

async function noteOdd(replica: store.ReplicaRow, deps: ComparisonDeps): Promise<void> {
  const { db, clock, supply, log } = deps;
  const { id, pool_id: poolId, machine_id: machineId } = replica;
  const disagreements = replica.disagreements + 1;
  log.error(
    { model: poolId, replica_id: id, machine_id: machineId, disagreements },
    'a replica alone answers otherwise than two other servers of its model',
  );
  await db.tx('replicas.disagree', async (tx) => {
    if (machineId !== null) await tx.lock('machine', machineId);
    await store.setDisagreements(tx, id, disagreements);
    if (disagreements < DISAGREEMENTS_MAX) return store.comparedAt(tx, poolId, clock.now() - COMPARE_MS);
    if (machineId !== null)
      await supply.accuse(tx, machineId, `its replica ${id} of ${poolId} answers otherwise than other servers do`);
  });
  if (disagreements >= DISAGREEMENTS_MAX)
    await failReplica(replica, 'it answers otherwise than other servers of its model', deps);
}

/** Resets the number of disagreements of these replicas, because only disagreements in a row count. */
async function clear(answers: readonly Answer[], { db }: ComparisonDeps): Promise<void> {
  const before = answers.flatMap(({ replica }) =>
    replica !== undefined && replica.disagreements > 0 ? [replica.id] : [],
  );
  if (before.length === 0) return;
  await Promise.all(before.map((id) => db.tx('replicas.agree', (tx) => store.setDisagreements(tx, id, 0))));
}

async function answerOf(
  server: Upstream,
  replica: store.ReplicaRow | undefined,
  { question, signal }: { question: Question; signal: AbortSignal },
  { exchanges }: ComparisonDeps,
): Promise<Answer> {
  try {
    const text = await completionOf(server, question, { exchanges, signal });
    return { server, replica, text: text?.trim().slice(0, COMPARED_CHARS) };
  } catch (error) {
    if (error instanceof OutboundError) return { server, replica, text: undefined };
    throw error;
  }
}

/** The first item of each key. */
function oneOf<T>(items: readonly T[], keyOf: (item: T, index: number) => unknown): T[] {
  const keys = items.map(keyOf);
  return items.filter((_, index) => keys.indexOf(keys[index]) === index);
}

function shuffled<T>(items: readonly T[], rng: Rng): T[] {
  return items
    .map((item) => ({ item, at: rng.float() }))
    .toSorted((a, b) => a.at - b.at)
    .map(({ item }) => item);
}
