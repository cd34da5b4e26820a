// The checks of a machine, each with its evidence, and with what to do if it has not passed.
import type { MachineCheck } from '../../../../shared/api/community.ts';

const STEPS = { passed: 'done', failed: 'bad', waiting: 'now' } as const;

export function CheckSteps({ checks }: { checks: readonly MachineCheck[] }) {
  return (
    <ol class="steps pad">
      {checks.map(({ name, state, evidence, remedy, required }) => (
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

/** Number of passed checks, like `5 of 7 passed`. */
export function passedWords(checks: readonly MachineCheck[]): string {
  return `${checks.filter(({ state }) => state === 'passed').length} of ${checks.length} passed`;
}
