// The operator's explanation of a placement: what each condition removes now, the candidates in their order, and what would work instead.
import {
  type PlacementAlternative,
  type PlacementAttempt,
  type PlacementCandidate,
  PlacementExplanation,
  type PlacementFilter,
} from '../../../shared/api/placement.ts';
import { type Clock, isoTime } from '../../../shared/clock.ts';
import { fail } from '../../../shared/errors.ts';
import { DISK_GB_MIN } from '../../../shared/limits.ts';
import { dollarsFromUcents, dollarText } from '../../../shared/money.ts';
import type { Db, Query } from '../../base/db/db.ts';
import type { Events } from '../../base/events/events.ts';
import { Id, operator } from '../../base/http/operator.ts';
import { type Route, route } from '../../base/http/route.ts';
import { fittingByType, type Narrowing, narrowing } from '../../fleet/supply/narrowing.ts';
import type { Candidate, CapacityRequest } from '../../fleet/supply/offerings.ts';
import { requirementsOf } from '../../fleet/supply/requirements.ts';
import { capacityRequest, fittingCandidates } from './place.ts';
import { findInstance, type InstanceRow, LIVE } from './store.ts';

const CANDIDATES_SHOWN = 20;
const EVENTS_SHOWN = 100;
const ALTERNATIVE_TYPES = 3;
const ATTEMPTS: ReadonlySet<string> = new Set(
  ['creating', 'placed', 'starting', 'running', 'failed', 'terminated'].map((name) => `instance.${name}`),
);

interface Deps {
  db: Db;
  clock: Clock;
  events: Pick<Events, 'ofSubject'>;
}

export function placementRoute(deps: Deps): Route {
  return route({
    ...operator,
    method: 'GET',
    path: '/admin/instances/{id}/placement',
    operationId: 'adminExplainPlacement',
    summary: 'Explain why an instance got its machine or no machine, as the market is now',
    params: Id,
    responses: { 200: { description: 'The explanation', schema: PlacementExplanation } },
    errors: ['not_found'],
    handler: async ({ params: { id } }) => {
      const row = (await findInstance(deps.db.read, id)) ?? fail('not_found', `There is no instance ${id}.`);
      return { status: 200, body: await explanationOf(row, deps) };
    },
  });
}

async function explanationOf(row: InstanceRow, { db, clock, events }: Deps): Promise<PlacementExplanation> {
  const { read } = db;
  const request = requestOf(row, clock.now());
  const candidates = await fittingCandidates(read, row, request);
  const isMarket = row.tier === 'on_demand';
  return {
    instance_id: row.id,
    org_id: row.org_id,
    status: row.status,
    status_reason: row.status_reason,
    machine_id: row.machine_id,
    as_of: isoTime(clock.now()),
    request: requestFields(row, request),
    market: row.tier,
    filters: isMarket ? filtersOf(request, await narrowing(read, { ...request, region: null })) : [],
    candidate_count: candidates.length,
    candidates: candidates.slice(0, CANDIDATES_SHOWN).map((each, index) => candidateView(each, index, request)),
    alternatives: isMarket && candidates.length === 0 ? await alternativesTo(read, request) : [],
    attempts: await attemptsOf(read, row.id, events),
  };
}

/**
 * The request as if the instance were placed now. If the instance is live, its present machine counts as not tried, because the operator asks why
 * the instance got that machine. If no other machine was tried before, the price there is no price cap either.
 */
function requestOf(row: InstanceRow, nowMs: number): CapacityRequest {
  if (!LIVE.has(row.status)) return capacityRequest(row, nowMs);
  const tried = row.tried_machine_ids.filter((id) => id !== row.machine_id);
  const price = tried.length === 0 ? 0n : row.price_ucents_per_hour;
  return capacityRequest({ ...row, tried_machine_ids: tried, price_ucents_per_hour: price }, nowMs);
}

function requestFields(row: InstanceRow, request: CapacityRequest): PlacementExplanation['request'] {
  const { maxPriceUcentsPerHour: cap } = request;
  return {
    name: row.name,
    gpu: `${row.gpu_count} ${row.gpu_type}`,
    tier: row.tier,
    region: request.region,
    offering_id: request.offeringId,
    price_cap_per_hour: cap === null ? null : dollarText(cap),
    disk_gb: request.diskGb,
    min_vram_gb: request.minVramGb === 0 ? null : request.minVramGb,
    ...Object.fromEntries(requirementsOf(request).map(({ field, words }) => [field, words])),
    reservation_id: row.reservation_id,
    ends_at: request.endsMs === null ? null : isoTime(request.endsMs),
    trusted_only: request.trustedOnly,
  };
}

type PlacementStep = [isAsked: boolean, filter: string, field: string | null, left: number];

/** Conditions that the request does not have are left out. */
function filtersOf(request: CapacityRequest, counts: Narrowing): PlacementFilter[] {
  const { gpuType, gpuCount, minVramGb, diskGb, roomGb = 0, maxPriceUcentsPerHour: cap } = request;
  const except = request.exceptMachineIds.length;
  const pinned = request.offeringId === null ? '' : ` and the offering ${request.offeringId}`;
  const steps: PlacementStep[] = [
    [true, 'All listed offerings', null, counts.listed],
    [true, `GPU type is ${gpuType}`, 'gpu_type', counts.ofType],
    [true, `At least ${gpuWords(gpuCount)} in one machine`, 'gpu_count', counts.bigEnough],
    [minVramGb > 0, `At least ${minVramGb} GB of VRAM`, 'template_id', counts.withVram],
    ...requirementsOf(request).map(({ field, words }, index): PlacementStep => [
      true,
      capitalized(words),
      field,
      counts.required[index] ?? 0,
    ]),
    [
      counts.staying < (counts.required.at(-1) ?? counts.withVram),
      'Offered until the launch has ended',
      'auto_terminate_hours',
      counts.staying,
    ],
    [true, `${gpuCount} of them free`, null, counts.free],
    [diskGb !== null, `A disk of ${diskGb} GB`, 'disk_gb', counts.withDisk],
    [counts.withDisk < counts.free && diskGb === null, `${roomGb} GB of disk left`, null, counts.withDisk],
    [request.trustedOnly, 'On machines that the operator trusts', null, counts.trusted],
    [cap !== null, `At most $${dollarText(cap ?? 0n)} an hour`, 'max_price_per_hour', counts.priced],
    [
      except > 0 || pinned !== '',
      `Not one of ${except} machines that were tried${pinned}`,
      pinned === '' ? null : 'offering_id',
      counts.affordable,
    ],
  ];
  const asked = steps.filter(([isAsked]) => isAsked);
  return asked.map(([, filter, field, left], index) => ({
    filter,
    field,
    removed: Math.max(0, (asked[index - 1]?.[3] ?? left) - left),
    left,
  }));
}

function candidateView(candidate: Candidate, index: number, { gpuCount }: CapacityRequest): PlacementCandidate {
  return {
    rank: index + 1,
    machine_id: candidate.machine_id,
    region: candidate.region,
    price_per_hour: dollarsFromUcents(candidate.price_ucents_per_hour * BigInt(gpuCount)),
    gpus_left_over: candidate.gpu_free - gpuCount,
  };
}

const capitalized = (words: string): string => words.charAt(0).toUpperCase() + words.slice(1);

const gpuWords = (count: number): string => `${count} GPU${count === 1 ? '' : 's'}`;

/** What the market offers now for requests that differ from `request` in one point. */
async function alternativesTo(query: Query, request: CapacityRequest): Promise<PlacementAlternative[]> {
  const { gpuType, gpuCount, diskGb, maxPriceUcentsPerHour: cap } = request;
  const anywhere = { ...request, region: null };
  const half = Math.floor(gpuCount / 2);
  const halved = { ...anywhere, gpuCount: half, maxPriceUcentsPerHour: cap === null ? null : cap / 2n };
  const changes: [isAsked: boolean, change: string, changed: typeof anywhere][] = [
    [cap !== null, 'No price cap', { ...anywhere, maxPriceUcentsPerHour: null }],
    [request.offeringId !== null, 'Any offering', { ...anywhere, offeringId: null }],
    [diskGb !== null, 'Without a size of the disk', { ...anywhere, diskGb: null, roomGb: DISK_GB_MIN }],
    [request.requirements !== undefined, 'Without `requirements`', { ...anywhere, requirements: {} }],
    [gpuCount % 2 === 0, `Two launches with ${gpuWords(half)} each`, halved],
  ];
  const found = await Promise.all(
    changes
      .filter(([isAsked]) => isAsked)
      .map(async ([, change, changed]) => {
        const rows = await fittingByType(query, changed);
        return rows.filter((row) => row.gpu_type === gpuType).map((row) => alternative(change, row, changed.gpuCount));
      }),
  );
  const types = (await fittingByType(query, anywhere)).filter((row) => row.gpu_type !== gpuType);
  const others = types.slice(0, ALTERNATIVE_TYPES).map((row) => alternative(`${row.gpu_type} instead`, row, gpuCount));
  return [...found.flat(), ...others];
}

type Fitting = Awaited<ReturnType<typeof fittingByType>>[number];

function alternative(change: string, row: Fitting, gpuCount: number): PlacementAlternative {
  const price = dollarsFromUcents(row.ucents_per_hour * BigInt(gpuCount));
  return { change, offerings: row.offerings, price_per_hour: price };
}

async function attemptsOf(query: Query, id: string, events: Deps['events']): Promise<PlacementAttempt[]> {
  const rows = await events.ofSubject(query, id, { count: EVENTS_SHOWN });
  return rows
    .filter(({ type }) => ATTEMPTS.has(type))
    .toReversed()
    .map(({ created_ms: atMs, type, data }) => ({
      at: isoTime(atMs),
      what: type,
      machine_id: typeof data['machine_id'] === 'string' ? data['machine_id'] : null,
      detail: typeof data['reason'] === 'string' ? data['reason'] : null,
    }));
}
