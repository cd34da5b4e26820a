// The operator's commands for models that run on the fleet.
import { type Command, InvalidArgumentError } from 'commander';
import { type CommandDeps, type CommonOptions, show, withCommon } from './command.ts';

interface ScaleOptions extends CommonOptions {
  min?: number;
  max?: number;
}

const URL = '/admin/models';

export function addModelCommands(admin: Command, deps: CommandDeps): void {
  const model = admin.command('model').description('models that the platform serves on machines of its suppliers');
  const named = (path: string, name: string): string => `${URL}/${path}?model=${encodeURIComponent(name)}`;
  withCommon(
    model.command('list').description('all tiers with a deployment: their replicas, their requests, what is wrong'),
  ).action((options: CommonOptions) => show(deps, options, { method: 'GET', url: URL }));
  withCommon(model.command('show <model>').description('one of them, like acme/tiny or acme/tiny:economy')).action(
    (name: string, options: CommonOptions) => show(deps, options, { method: 'GET', url: named('tier', name) }),
  );
  withCommon(
    model
      .command('replicas <model>')
      .description('its replicas that live and the last 50, newest first: where they run, why they ended'),
  ).action((name: string, options: CommonOptions) =>
    show(deps, options, { method: 'GET', url: named('replicas', name) }),
  );
  withCommon(
    model
      .command('scale <model>')
      .description(
        'set its limits in place of those of the file of models; a limit that is left out is that of the file',
      )
      .option('--min <count>', 'replicas that run always', readCount)
      .option('--max <count>', 'replicas that run at most', readCount),
  ).action((name: string, { min, max, ...options }: ScaleOptions) =>
    show(deps, options, {
      method: 'POST',
      url: `${URL}/scale`,
      payload: { model: name, min_replicas: min ?? null, max_replicas: max ?? null },
    }),
  );
  withCommon(
    model
      .command('upstreams')
      .description('the servers that answer requests, as the daemon has found them: which get no requests'),
  ).action((options: CommonOptions) => show(deps, options, { method: 'GET', url: '/admin/upstreams' }));
  withCommon(model.command('drain <replica>').description('let a replica answer its last requests, and end it')).action(
    (id: string, options: CommonOptions) =>
      show(deps, options, { method: 'POST', url: `${URL}/replicas/${encodeURIComponent(id)}/drain` }),
  );
}

function readCount(text: string): number {
  if (!/^\d{1,4}$/.test(text)) throw new InvalidArgumentError('It must be a whole number like 0 or 3.');
  return Number(text);
}
