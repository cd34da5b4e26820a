// The launch screen: the GPUs that are free now, the highest cost of the launch, and why an offering is not shown.
import type { ComponentChildren } from 'preact';
import { useMemo } from 'preact/hooks';
import { Link, useSearchParams } from 'wouter-preact';
import type { Balance } from '../../../../shared/api/billing.ts';
import type { Instance } from '../../../../shared/api/instance.ts';
import type { InstanceRequest } from '../../../../shared/api/instance-request.ts';
import type { Operation } from '../../../../shared/api/operation.ts';
import { ApiError, get, post } from '../core/api.ts';
import { useResource } from '../core/data.ts';
import { dollars, gpus, plural, rate } from '../core/format.ts';
import { openSameKey } from '../core/same-key.ts';
import { may } from '../core/session.ts';
import { useTyped } from '../core/typed.ts';
import { SameAs } from '../parts/command.tsx';
import { type Action, Field, Form, useAction } from '../parts/forms.tsx';
import { Card, Head, Note, Problem } from '../parts/layout.tsx';
import { filteredBy } from './launch-filters.ts';
import {
  draftLike,
  EMPTY_DRAFT,
  type LaunchDraft,
  launchLine,
  lostOf,
  missingOf,
  placeOf,
  quoteOf,
  requestOf,
  withoutSecrets,
} from './launch-form.ts';
import { Offerings } from './launch-offerings.tsx';
import { Rule, WhatToRun } from './launch-source.tsx';

const PLACED_POLL_MS = 500;

/** `?again=<id>` fills the form in like an instance that was launched before. */
export function Launch() {
  const [query] = useSearchParams();
  const id = query.get('again');
  const path = id === null ? undefined : `/v1/instances/${encodeURIComponent(id)}`;
  const like = useResource<Instance>(path);
  const asked = useResource<InstanceRequest>(path === undefined ? undefined : `${path}/request`);
  const [instance, request] = [like.data.value, asked.data.value];
  if (id === null) return <LaunchForm form="launch" initial={EMPTY_DRAFT} />;
  if (instance !== undefined && request !== undefined) {
    const again = <Again instance={instance} lost={lostOf(request)} />;
    return <LaunchForm key={id} form={`launch/${id}`} initial={draftLike(request, instance)} again={again} />;
  }
  const error = like.error.value ?? asked.error.value;
  const reload = (): void => void Promise.all([like.reload(), asked.reload()]);
  return error === undefined ? <p class="quiet">Reading…</p> : <Problem error={error} retry={reload} />;
}

interface LaunchFormProps {
  /** What is typed is kept under this name. */
  form: string;
  initial: LaunchDraft;
  /** The sentence about the instance that is launched again. */
  again?: ComponentChildren;
}

function LaunchForm({ form, initial, again }: LaunchFormProps) {
  const [typed, setDraft] = useTyped(form, initial, withoutSecrets);
  // A draft that the page of an older version has kept lacks newer fields.
  const draft = { ...EMPTY_DRAFT, ...typed };
  const withSameKey = useMemo(openSameKey, []);
  const request = requestOf(draft);
  const action = useAction(async ({ goTo, isHere }) => {
    const path = await withSameKey(request, async (options) => {
      const accepted = await post<Operation>('/v1/instances', request, options);
      const id = await placed(accepted, isHere);
      return id === undefined ? undefined : `/console/instances/${id}?operation=${accepted.operation_id}`;
    });
    if (path !== undefined) goTo(path);
  });
  const change = (part: Partial<LaunchDraft>): void => setDraft((before) => ({ ...before, ...part }));
  return (
    <>
      <Head title="Launch an instance" same={{ cli: 'svc price list', curl: { path: '/v1/pricing' } }} />
      {again}
      <div class="split">
        <div class="stack">
          <Offerings draft={draft} change={change} action={action} />
          <Rule action={action} field="gpu_type" />
          <WhatToRun draft={draft} change={change} action={action} />
        </div>
        <aside class="stack stick" aria-label="Quote">
          <QuoteCard draft={draft} change={change} action={action} />
          {request.gpu_type !== undefined && (
            <SameAs isLong cli={launchLine(draft)} curl={{ method: 'POST', path: '/v1/instances', body: request }} />
          )}
        </aside>
      </div>
    </>
  );
}

function Again({ instance: { id, name }, lost }: { instance: Instance; lost: readonly string[] }) {
  return (
    <Note
      action={
        <Link class="btn sm" href={`/console/instances/${id}`}>
          See it
        </Link>
      }
    >
      <b>The form is filled in like {name ?? id}.</b> Choose an offering
      {lost.length > 0 && `, and add what the form could not take over: ${lost.join('; ')}`}.
    </Note>
  );
}

/**
 * The id of the instance, as soon as the launch has one; undefined if the person goes to another screen before. @throws ApiError if the launch
 * fails before
 */
async function placed(accepted: Operation, isHere: () => boolean): Promise<string | undefined> {
  for (let operation = accepted; ;) {
    if (operation.resource_id !== null) return operation.resource_id;
    const { state, error } = operation;
    if (state === 'failed' || state === 'cancelled') {
      throw new ApiError(0, error?.code ?? 'operation_failed', error?.detail ?? `The launch was ${state}.`);
    }
    await new Promise((resolve) => setTimeout(resolve, PLACED_POLL_MS));
    if (!isHere()) return undefined;
    operation = await get<Operation>(`/v1/operations/${operation.operation_id}`);
  }
}

interface QuoteProps {
  draft: LaunchDraft;
  change(part: Partial<LaunchDraft>): void;
  action: Action;
}

function QuoteCard({ draft, change, action }: QuoteProps) {
  const { chosen, gpuCount } = draft;
  const place = placeOf(draft);
  const quote = quoteOf(draft);
  const price = quote === undefined ? '' : ` at ${rate(quote.total)}/h`;
  const missing = missingOf(draft);
  const mayLaunch = may('instances: write');
  const isShort = chosen !== undefined && draft.tier === 'on_demand' && chosen.available < gpuCount;
  const filter = chosen === undefined || draft.tier === 'reserved' ? undefined : filteredBy(chosen, draft);
  return (
    <Card
      title="Quote"
      {...(place === undefined ? {} : { note: `${gpus(gpuCount, place.gpu_type)}, ${place.region}` })}
    >
      <div class="pad stack">
        <Sum draft={draft} />
        <Form
          action={action}
          submit={`Launch${price}`}
          busy="Launching…"
          isDisabled={place === undefined || missing !== undefined || isShort || filter !== undefined || !mayLaunch}
        >
          <Limits draft={draft} change={change} action={action} />
          {place !== undefined && missing !== undefined && <p class="small warn">{missing}</p>}
          {!mayLaunch && <p class="small warn">Your role may not launch. Ask an owner for another role.</p>}
          {filter !== undefined && <p class="small warn">The filters hide the chosen offering: {filter}.</p>}
          {isShort && <p class="small warn">Only {plural(chosen.available, 'GPU')} of it are free.</p>}
        </Form>
        <p class="small dim">
          <b class="ok">Boot is free.</b> The meter starts when your SSH login has been tested. If the price moves by
          more than $0.01 before then, nothing launches and you are asked again.
        </p>
      </div>
    </Card>
  );
}

function Sum({ draft }: { draft: LaunchDraft }) {
  const { chosen, gpuCount, disk } = draft;
  const quote = quoteOf(draft);
  if (placeOf(draft) === undefined) return <p class="dim">Choose GPUs to see what they cost.</p>;
  if (quote === undefined || chosen === undefined) return <p class="dim">The contract pays for it: $0.00 per hour.</p>;
  return (
    <dl class="kv sum">
      <dt>
        {plural(gpuCount, 'GPU')} at {rate(chosen.price_per_hour)}
      </dt>
      <dd>{dollars(quote.gpus, 3)}</dd>
      <dt>{disk === '' ? 'Disk, 100 GB included' : `Disk ${disk} GB, 100 included`}</dt>
      <dd>{dollars(quote.disk, 3)}</dd>
      <dt class="total">Per hour</dt>
      <dd class="total">{dollars(quote.total, 3)}</dd>
      <dt class="quiet">Per second</dt>
      <dd class="quiet">{dollars(quote.total / 3_600, 6)}</dd>
    </dl>
  );
}

function Limits({ draft, change, action }: QuoteProps) {
  const { disk, hours, endsOnExit, cap, chosen } = draft;
  return (
    <>
      {draft.tier === 'on_demand' && (
        <label class="check">
          <input
            type="checkbox"
            checked={draft.isPinned}
            onChange={(event) => change({ isPinned: event.currentTarget.checked })}
          />
          Only on this host: if it fails, the launch fails
        </label>
      )}
      <Field
        label="Disk, GB"
        type="number"
        placeholder="100"
        value={disk}
        onValue={(next) => change({ disk: next })}
        rule={action.ruleOf('disk_gb')}
        disabled={chosen?.disk_configurable === false && disk === ''}
        hint={chosen?.disk_configurable === false ? 'The size cannot be chosen here.' : 'Empty: 100 GB, included.'}
      />
      <Field
        label="Stop by itself after, hours"
        type="number"
        min="1"
        value={hours}
        onValue={(next) => change({ hours: next })}
        rule={action.ruleOf('auto_terminate_hours')}
        hint={<AtMost draft={draft} />}
      />
      <label class="check">
        <input
          type="checkbox"
          checked={endsOnExit}
          onChange={(event) => change({ endsOnExit: event.currentTarget.checked })}
        />
        Stop by itself when the program has ended
      </label>
      <Field
        label="Never pay more than, $ per hour"
        type="number"
        step="0.01"
        min="0"
        value={cap}
        onValue={(next) => change({ cap: next })}
        rule={action.ruleOf('max_price_per_hour')}
        hint="Holds for every placement, retries too."
      />
    </>
  );
}

/** What the instance costs until its time limit, and the balance that is left then. */
function AtMost({ draft }: { draft: LaunchDraft }) {
  const balance = useResource<Balance>(may('billing: read') ? '/v1/balance' : undefined).data.value;
  const quote = quoteOf(draft);
  if (quote === undefined || draft.hours === '') return <>Counts from running. Empty: no limit.</>;
  const most = quote.total * Number(draft.hours);
  return (
    <>
      Counts from running. At most <b>{dollars(most)}</b>
      {balance !== undefined && `, leaves ${dollars(Number(balance.available) - most)}`}.
    </>
  );
}
