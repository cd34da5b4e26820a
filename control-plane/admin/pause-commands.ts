// `admin pause` and `admin resume`: the switch for emergencies.
import type { Command } from 'commander';
import { type CommandDeps, type CommonOptions, show, withCommon } from './command.ts';

const WHAT = {
  launches: 'new rentals; what runs goes on, and trainings wait',
  payouts: 'payouts to suppliers: none becomes due or leaves',
};

export function addPauseCommands(admin: Command, deps: CommandDeps): void {
  const pause = admin.command('pause').description('stop something in an emergency, in all control planes at once');
  const resume = admin.command('resume').description('let it go on');
  for (const [what, meaning] of Object.entries(WHAT)) {
    withCommon(
      pause
        .command(what)
        .description(meaning)
        .requiredOption('--reason <text>', 'why; customers and suppliers read it'),
    ).action(({ reason, ...options }: CommonOptions & { reason: string }) =>
      show(deps, options, { method: 'POST', url: `/admin/pauses/${what}`, payload: { reason } }),
    );
    withCommon(resume.command(what).description(meaning)).action((options: CommonOptions) =>
      show(deps, options, { method: 'POST', url: `/admin/pauses/${what}/resume` }),
    );
  }
}
