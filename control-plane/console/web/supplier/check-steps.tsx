// The checks of a machine, each with its evidence, and with what to do if it has not passed.
import type { MachineCheck } from '../../../../shared/api/community.ts';

const STEPS = { passed: 'done', failed: 'bad', waiting: 'now' } as const;

export function CheckSteps({ checks }: { checks: readonly MachineCheck[] }) {
  const isEnrolled = checks.some(({ name, state }) => name === 'enrolment' && state === 'passed');
  return (
    <ol class="steps pad">
      {checks
        .map((check) => stepOf(check, isEnrolled))
        .map(({ name, state, evidence, remedy, required }) => (
          <li key={name} class={STEPS[state]}>
            <b>{name.replaceAll('_', ' ')}</b>
            <span class="at">{required ? state : `${state}, not required`}</span>
            <span class="small quiet">{evidence}</span>
            {remedy !== null && (
              <div class={state === 'failed' ? 'wide fix' : 'wide'}>
                <p class="small">{remedy}</p>
              </div>
            )}
          </li>
        ))}
    </ol>
  );
}

/** Before the enrolment nothing is known of the host, so only the enrolment has evidence and a remedy. */
function stepOf(check: MachineCheck, isEnrolled: boolean): MachineCheck {
  if (isEnrolled || check.name === 'enrolment' || check.state !== 'waiting') return check;
  return { ...check, evidence: 'Known once the host has enrolled.', remedy: null };
}

/** Number of passed checks, like `5 of 7 passed`. */
export function passedWords(checks: readonly MachineCheck[]): string {
  return `${checks.filter(({ state }) => state === 'passed').length} of ${checks.length} passed`;
}
