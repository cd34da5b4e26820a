// How an instance boots: the steps that are done, the step under way, and the steps to come. The boot is not billed.
import type { ComponentChildren } from 'preact';
import type { InstanceEvent } from '../../../../shared/api/instance-journal.ts';
import type { Instance } from '../../../../shared/api/instance.ts';
import type { Operation } from '../../../../shared/api/operation.ts';
import { serviceNow } from '../core/clock.ts';
import { useResource } from '../core/data.ts';
import { bytes, duration, time } from '../core/format.ts';
import { Card, Tag } from '../parts/layout.tsx';

const OPERATION_MS = 1_000;
const MIB = 1_024 ** 2;

/** Titles of the events that belong to a boot, by event type. */
const TITLES: Record<string, string> = {
  'instance.creating': 'Accepted',
  'instance.placed': 'Placed on a machine',
  'instance.starting': 'Container being made',
  'instance.running': 'SSH login tested, running',
};

interface BootProps {
  instance: Instance;
  /** Oldest first. */
  events: readonly InstanceEvent[];
  /** The operation of the launch; null if it is not known. Only the operation reports how much of the image has been pulled. */
  operationId: string | null;
}

export function isBooting({ status }: Instance): boolean {
  return status === 'allocating' || status === 'starting';
}

export function Boot({ instance, events, operationId }: BootProps) {
  const booting = isBooting(instance);
  const followed = booting && operationId !== null ? `/v1/operations/${encodeURIComponent(operationId)}` : undefined;
  const operation = useResource<Operation>(followed, { everyMs: OPERATION_MS }).data.value;
  const firstRun = events.findIndex(({ type }) => type === 'instance.running');
  const steps = (firstRun === -1 ? events : events.slice(0, firstRun + 1)).filter(({ type }) => type in TITLES);
  return (
    <Card title="Boot" note={noteOf(instance)} actions={booting && <Tag tone="ok">Not billed yet</Tag>}>
      <ol class="steps pad">
        {steps.map(({ id, type, reason, created_at: at }) => (
          <Step key={id} kind={reason === null ? 'done' : 'warn'} title={TITLES[type] ?? type} at={at}>
            {reason ?? (type === 'instance.running' ? `billing began ${time(at)}` : null)}
          </Step>
        ))}
        {booting && <Now instance={instance} operation={operation} />}
        {booting && (
          <li class="todo">
            Test an SSH login from outside
            <br />
            <span class="small">Only then it is running, and billing starts.</span>
          </li>
        )}
        {instance.status === 'error' && (
          <Step kind="bad" title="Failed">
            {instance.status_reason ?? null}
          </Step>
        )}
      </ol>
    </Card>
  );
}

interface StepProps {
  kind: 'done' | 'warn' | 'bad';
  title: string;
  at?: string;
  children: ComponentChildren;
}

function Step({ kind, title, at, children }: StepProps) {
  return (
    <li class={kind}>
      <b>{title}</b>
      {at !== undefined && (
        <time class="at" dateTime={at}>
          {time(at)}
        </time>
      )}
      {children !== null && <span class="small quiet">{children}</span>}
    </li>
  );
}

function Now({ instance, operation }: { instance: Instance; operation: Operation | undefined }) {
  const progress = operation?.progress;
  const pull = pullOf(progress);
  const since = operation?.created_at ?? instance.created_at;
  return (
    <li class="now">
      <b>{instance.status === 'allocating' ? 'Looking for free GPUs' : nowOf(progress)}</b>
      <span class="at">{duration((serviceNow() - Date.parse(since)) / 1_000)}</span>
      <span class="small quiet" role="status">
        {pull === undefined ? (instance.status_reason ?? '') : `${bytes(pull.done)} of ${bytes(pull.total)}`}
      </span>
      {pull !== undefined && (
        <progress class="wide" value={pull.done} max={pull.total} aria-label="Image pulled">
          {Math.round((pull.done / pull.total) * 100)}%
        </progress>
      )}
    </li>
  );
}

function nowOf(progress: string | undefined): string {
  if (progress === undefined) return 'Pulling the image and starting the container';
  const text = progress.split(':')[0] ?? progress;
  return text.charAt(0).toUpperCase() + text.slice(1);
}

/** The pulled and the total bytes, from a progress text like `pulling the image: 5.0 of 9.4 MiB`. Undefined for any other text. */
function pullOf(progress = ''): { done: number; total: number } | undefined {
  const [, done, total] = /([\d.]+) of ([\d.]+) MiB$/.exec(progress) ?? [];
  return done === undefined || total === undefined
    ? undefined
    : { done: Number(done) * MIB, total: Number(total) * MIB };
}

function noteOf({ created_at: asked, ready_at: ready }: Instance): string | undefined {
  if (ready === null) return undefined;
  return `${duration((Date.parse(ready) - Date.parse(asked)) / 1_000)}, not billed`;
}
