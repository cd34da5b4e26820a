// The status of a machine, and why none of its GPUs is on offer.
import type { CommunityMachine } from '../../../../shared/api/community.ts';
import { Badge, type Tone } from '../parts/layout.tsx';

const TONES: Record<CommunityMachine['status'], Tone> = {
  pending_verification: 'info',
  listed: 'ok',
  delisted: '',
  suspended: 'bad',
};

export function MachineStatus({ machine }: { machine: CommunityMachine }) {
  const { status, status_reason: reason, online } = machine;
  const isTrouble = status === 'listed' && (reason !== null || !online);
  return (
    <>
      <Badge tone={isTrouble ? 'warn' : TONES[status]}>{status.replaceAll('_', ' ')}</Badge>
      {reason !== null && <small class={isTrouble ? 'warn' : ''}>{reason}</small>}
      {!online && reason === null && <small>its agent is not connected</small>}
    </>
  );
}
