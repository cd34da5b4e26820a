// The content of the launch form, the request and the `svc` line that it becomes, and the price of an hour.
import type { CreateInstance, Port } from '../../../../shared/api/instance.ts';
import type { InstanceRequest } from '../../../../shared/api/instance-request.ts';
import type { PricingRow } from '../../../../shared/api/pricing.ts';
import { DISK_GB_INCLUDED } from '../../../../shared/limits.ts';
import { quoted } from '../core/format.ts';
import { type Filters, filtersOf, NO_FILTERS, requirementOptions, requirementsOf } from './launch-filters.ts';

/** The source of the image of a launch. */
export type Source = 'environment' | 'template' | 'image';

export type Reserved = Pick<PricingRow, 'gpu_type' | 'region'>;

/** The arguments of a program: the image's own, none, or those that the person has typed, one on each line. */
export interface Argv {
  kind: 'own' | 'none' | 'typed';
  text: string;
}

export interface LaunchDraft {
  tier: 'on_demand' | 'reserved';
  gpuCount: number;
  filters: Filters;
  /** The offering that the person has chosen; undefined before. */
  chosen: PricingRow | undefined;
  /** True if the launch may run on the chosen offering only. */
  isPinned: boolean;
  /** The contract capacity that the person has chosen. It is used instead of `chosen` if the tier is reserved. */
  reserved: Reserved | undefined;
  source: Source;
  environment: string;
  template: string;
  image: string;
  credential: string;
  /** `NAME=value` lines. */
  env: string;
  /** True if the values of `env` were left out, and are to be typed again. */
  lacksValues: boolean;
  /** The ports, like `8080/http 5432/tcp`. Each is served at an address of its own. */
  ports: string;
  /** The http port that is served at the app URL; empty: none. */
  primary: string;
  entrypoint: Argv;
  cmd: Argv;
  name: string;
  /** Fields for numbers are kept as the typed text. */
  disk: string;
  cap: string;
  hours: string;
  /** The instance ends when its program has ended. */
  endsOnExit: boolean;
  /** Ids of the SSH keys that may log in; undefined: all keys of the organisation, including keys that are added later. */
  keys: readonly string[] | undefined;
}

export const EMPTY_DRAFT: LaunchDraft = {
  tier: 'on_demand',
  gpuCount: 1,
  filters: NO_FILTERS,
  chosen: undefined,
  isPinned: false,
  reserved: undefined,
  source: 'environment',
  environment: '',
  template: '',
  image: '',
  credential: '',
  env: '',
  lacksValues: false,
  ports: '',
  primary: '',
  entrypoint: { kind: 'own', text: '' },
  cmd: { kind: 'own', text: '' },
  name: '',
  disk: '',
  cap: '',
  hours: '',
  endsOnExit: false,
  keys: undefined,
};

/** A draft of the same launch, without the values of its variables and without an offering, because the same one may not be free. */
export function draftLike(asked: InstanceRequest, { gpu_type: type, region }: Reserved): LaunchDraft {
  const isReserved = asked.tier === 'reserved';
  const { disk_gb: disk, max_price_per_hour: cap, auto_terminate_hours: hours } = asked;
  return {
    ...EMPTY_DRAFT,
    tier: isReserved ? 'reserved' : 'on_demand',
    gpuCount: asked.gpu_count,
    filters: { ...filtersOf(asked.requirements), type },
    isPinned: !isReserved && asked.offering_id !== undefined,
    reserved: isReserved ? { gpu_type: type, region } : undefined,
    ...sourceLike(asked),
    env: asked.env_names.map((name) => `${name}=`).join('\n'),
    lacksValues: asked.env_names.length > 0,
    disk: disk === undefined ? '' : String(disk),
    cap: cap === undefined ? '' : String(cap),
    hours: hours === undefined ? '' : String(hours),
    endsOnExit: asked.auto_terminate_on_exit === true,
    keys: asked.ssh_key_ids,
  };
}

function sourceLike(asked: InstanceRequest): Partial<LaunchDraft> {
  const { image, template_id: template, environment, ports = [] } = asked;
  if (template !== undefined) return { source: 'template', template };
  if (image === undefined) return { source: 'environment', environment: environment ?? '' };
  return {
    source: 'image',
    image,
    credential: asked.registry_credential_id ?? '',
    ports: ports.map(({ port, protocol }) => `${port}/${protocol}`).join(' '),
    primary: String(ports.find((port) => port.primary === true)?.port ?? ''),
    entrypoint: argvLike(asked.entrypoint),
    cmd: argvLike(asked.cmd),
  };
}

function argvLike(given: readonly string[] | undefined): Argv {
  if (given === undefined || hasLines(given)) return { kind: 'own', text: '' };
  return given.length === 0 ? { kind: 'none', text: '' } : { kind: 'typed', text: given.join('\n') };
}

const hasLines = (given: readonly string[] = []): boolean => given.some((argument) => argument.includes('\n'));

/** What the form cannot hold of a request, in words. */
export function lostOf({ requirements, entrypoint, cmd, env_names: names }: InstanceRequest): string[] {
  return [
    ...(names.length > 0 ? ['the values of the variables'] : []),
    ...((requirements?.regions ?? []).length > 1 ? [`one of its regions (${requirements?.regions?.join(', ')})`] : []),
    ...(hasLines(entrypoint) || hasLines(cmd) ? ['the command, which has arguments of several lines'] : []),
  ];
}

export interface Quote {
  gpus: number;
  disk: number;
  /** Dollars an hour for the whole instance. */
  total: number;
}

/** The price of the draft. Undefined without a chosen offering, and for a reserved launch, because it has no price by the hour. */
export function quoteOf({ tier, chosen, gpuCount, disk }: LaunchDraft): Quote | undefined {
  if (tier === 'reserved' || chosen === undefined) return undefined;
  const gpus = chosen.price_per_hour * gpuCount;
  const extraGb = disk === '' ? 0 : Math.max(0, Number(disk) - DISK_GB_INCLUDED);
  const extra = extraGb * chosen.disk_price_per_gb_hour;
  return { gpus, disk: extra, total: rounded(gpus + extra) };
}

/** Removes the rounding errors of binary fractions from a sum of decimal prices. */
const rounded = (value: number): number => Number(value.toFixed(8));

/** GPU type and region of the chosen contract capacity if the tier is reserved, else of the chosen offering; undefined before a choice. */
export function placeOf({ tier, chosen, reserved }: LaunchDraft): Reserved | undefined {
  return tier === 'reserved' ? reserved : chosen;
}

/** What the person must still choose to run; undefined if nothing. An empty choice would be refused in the words of the API. */
export function missingOf({ source, template, image, lacksValues }: LaunchDraft): string | undefined {
  if (lacksValues) return 'Type the values of the variables: they may be secrets, so they are not kept.';
  if (source === 'template' && template === '') return 'Choose a template to run.';
  return source === 'image' && image.trim() === '' ? 'Name the image to run.' : undefined;
}

/** The body of POST /v1/instances. It may be invalid: only the API checks it. */
export function requestOf(draft: LaunchDraft): Partial<CreateInstance> {
  const { tier, gpuCount, keys, name, disk, cap, hours, endsOnExit } = draft;
  const place = placeOf(draft);
  const requirements = requirementsOf(draft);
  const pin = tier === 'on_demand' && draft.isPinned ? draft.chosen?.offering_id : undefined;
  const quote = quoteOf(draft);
  const env = envOf(draft.env);
  return {
    ...(place === undefined ? {} : { gpu_type: place.gpu_type }),
    // A required region needs no preferred one, and an offering has one.
    ...(place === undefined || requirements?.regions !== undefined || pin !== undefined
      ? {}
      : { region: place.region }),
    ...(pin === undefined ? {} : { offering_id: pin }),
    gpu_count: gpuCount,
    tier,
    ...(requirements === undefined ? {} : { requirements }),
    ...sourceOf(draft),
    ...(name === '' ? {} : { name }),
    ...(disk === '' ? {} : { disk_gb: Number(disk) }),
    ...(Object.keys(env).length === 0 ? {} : { env }),
    ...(keys === undefined ? {} : { ssh_key_ids: [...keys] }),
    ...(cap === '' ? {} : { max_price_per_hour: Number(cap) }),
    ...(quote === undefined ? {} : { viewed_price_per_hour: quote.total }),
    ...(hours === '' ? {} : { auto_terminate_hours: Number(hours) }),
    ...(endsOnExit ? { auto_terminate_on_exit: true } : {}),
  };
}

function sourceOf(draft: LaunchDraft): Partial<CreateInstance> {
  const { source, environment, template, image, credential } = draft;
  if (source === 'environment') return environment === '' ? {} : { environment };
  if (source === 'template') return { template_id: template };
  const ports = portsOf(draft);
  const [entrypoint, cmd] = [argumentsOf(draft.entrypoint), argumentsOf(draft.cmd)];
  return {
    image,
    ...(credential === '' ? {} : { registry_credential_id: credential }),
    ...(ports.length === 0 ? {} : { ports }),
    ...(entrypoint === undefined ? {} : { entrypoint }),
    ...(cmd === undefined ? {} : { cmd }),
  };
}

/** The draft with the names of its variables, and without their values. */
export function withoutSecrets(draft: LaunchDraft): LaunchDraft {
  const names = Object.keys(envOf(draft.env));
  if (names.length === 0) return draft;
  return { ...draft, env: names.map((name) => `${name}=`).join('\n'), lacksValues: true };
}

/** Parses lines `NAME=value`. A line without `=` is a name with an empty value. The API refuses names that it does not allow. */
function envOf(text: string): Record<string, string> {
  const lines = text.split('\n').filter((line) => line.trim() !== '');
  return Object.fromEntries(
    lines.map((line) => {
      const at = line.indexOf('=');
      return at === -1 ? [line.trim(), ''] : [line.slice(0, at).trim(), line.slice(at + 1)];
    }),
  );
}

/** The arguments of the request. Undefined: the image's own arguments. */
function argumentsOf({ kind, text }: Argv): string[] | undefined {
  if (kind === 'none') return [];
  const lines = text.split('\n').filter((line) => line !== '');
  return kind === 'own' || lines.length === 0 ? undefined : lines;
}

/** Parses the text of the ports. `primary` has an effect only if the text contains that port as an http port. */
export function portsOf({ ports, primary }: Pick<LaunchDraft, 'ports' | 'primary'>): Port[] {
  return portWords(ports).map((word): Port => {
    const [port, protocol] = word.split('/');
    const listed = { port: Number(port), protocol: (protocol ?? 'http') as Port['protocol'] };
    return listed.protocol === 'http' && String(listed.port) === primary ? { ...listed, primary: true } : listed;
  });
}

const portWords = (ports: string): string[] => ports.split(/[\s,]+/).filter((word) => word !== '');

/** The `svc` line for the draft. The command has no flag for the price that the person saw, so the line has no such price. */
export function launchLine(draft: LaunchDraft): string {
  const request = requestOf(draft);
  const flags: [string, string | number | undefined][] = [
    ['--gpu-type', request.gpu_type ?? 'TYPE'],
    ['--count', request.gpu_count],
    ['--tier', request.tier === 'on_demand' ? undefined : request.tier],
    ['--region', request.region],
    ['--offering', request.offering_id],
    ...requirementOptions(request.requirements),
    ['--environment', request.environment],
    ['--template', request.template_id],
    ['--image', draft.source === 'image' ? draft.image || 'IMAGE' : undefined],
    ['--registry-credential', request.registry_credential_id],
    ['--name', request.name],
    ['--disk', request.disk_gb],
    ...Object.entries(request.env ?? {}).map(([key, value]): [string, string] => ['--env', `${key}=${value}`]),
    ...portFlags(request.ports ?? [], draft),
    ...typedOf(request.entrypoint).map((argument): [string, string] => ['--entrypoint', argument]),
    ...(request.ssh_key_ids ?? []).map((key): [string, string] => ['--ssh-key', key]),
    ['--max-price', request.max_price_per_hour],
    ['--auto-terminate-hours', request.auto_terminate_hours],
  ];
  const words = flags.flatMap(([flag, value]) => (value === undefined ? [] : [`${flag} ${quoted(String(value))}`]));
  if (request.auto_terminate_on_exit === true) words.push('--auto-terminate-on-exit');
  const cmd = typedOf(request.cmd).map((argument) => ` ${quoted(argument)}`);
  return `svc instance create ${words.join(' ')}${cmd.length === 0 ? '' : ` --${cmd.join('')}`}`;
}

/** A word that is no port stays as it was typed. */
function portFlags(ports: readonly Port[], draft: LaunchDraft): [string, string][] {
  const words = portWords(draft.ports);
  return ports.map(({ port, protocol, primary }, index) => [
    '--port',
    Number.isNaN(port) ? (words[index] ?? '') : `${port}/${protocol}${primary === true ? '/primary' : ''}`,
  ]);
}

/** Arguments as they are typed on a command line: a single empty argument means "no arguments". */
function typedOf(given: readonly string[] | undefined): readonly string[] {
  return given?.length === 0 ? [''] : (given ?? []);
}
