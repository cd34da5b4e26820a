// The status of an instance, with its reason or with a note that the instance is not billed now.
import type { Instance } from '../../../../shared/api/instance.ts';
import { time } from '../core/format.ts';
import { Badge, type Tone } from '../parts/layout.tsx';

const TONES: Record<Instance['status'], Tone> = {
  allocating: 'info',
  starting: 'info',
  running: 'ok',
  stopping: 'info',
  stopped: '',
  terminated: '',
  unreachable: 'warn',
  error: 'bad',
};

export function InstanceStatus({ instance }: { instance: Instance }) {
  const { status } = instance;
  const why = whyOf(instance);
  const failure = failureOf(instance);
  return (
    <>
      <Badge tone={failure === undefined ? TONES[status] : 'bad'}>
        {failure === undefined ? status : `${status}, ${failure}`}
      </Badge>
      {why !== undefined && <small>{why}</small>}
    </>
  );
}

/** How the program of an ended instance has failed, like `exit code 3` or `SIGKILL`; undefined if it has not. */
function failureOf({ status, main_exit: exit }: Instance): string | undefined {
  if ((status !== 'terminated' && status !== 'stopped') || exit === undefined) return undefined;
  if (exit.signal !== null) return exit.signal;
  return exit.code === 0 || exit.code === null ? undefined : `exit code ${exit.code}`;
}

function whyOf({ status, status_reason: reason, unreachable_since: since }: Instance): string | undefined {
  if (status === 'unreachable' && since !== undefined) return `since ${time(since)}, not billed meanwhile`;
  if (reason !== undefined) return reason;
  return status === 'allocating' || status === 'starting' ? 'not billed yet' : undefined;
}
