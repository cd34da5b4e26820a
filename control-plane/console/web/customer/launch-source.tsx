// The part of the launch form for the image (an environment, a template or an own image) and for the keys that may log in.
import type { Page } from '../../../../shared/api/page.ts';
import type { SshKey } from '../../../../shared/api/account.ts';
import type { Environments, Template } from '../../../../shared/api/preset.ts';
import type { RegistryCredential } from '../../../../shared/api/registry-credential.ts';
import { useId } from 'preact/hooks';
import { Link } from 'wouter-preact';
import { useResource } from '../core/data.ts';
import { useAllPages } from '../core/pages.ts';
import { may } from '../core/session.ts';
import { type Action, Field, nameOf, Select, spoken, TextField } from '../parts/forms.tsx';
import { Card, Problem } from '../parts/layout.tsx';
import { type Argv, type LaunchDraft, portsOf, type Source } from './launch-form.ts';

const SOURCES: readonly (readonly [Source, string])[] = [
  ['environment', 'Environment'],
  ['template', 'Template'],
  ['image', 'Own image'],
];

interface PartProps {
  draft: LaunchDraft;
  change(part: Partial<LaunchDraft>): void;
  action: Action;
}

export function WhatToRun({ draft, change, action }: PartProps) {
  const part = { draft, change, action };
  return (
    <Card
      title="What to run"
      actions={
        <span class="seg push" role="group" aria-label="Kind">
          {SOURCES.map(([source, title]) => (
            <label key={source}>
              <input
                type="radio"
                name="source"
                checked={draft.source === source}
                onChange={() => change({ source, env: '', lacksValues: false })}
              />
              {title}
            </label>
          ))}
        </span>
      }
    >
      <div class="pad grid">
        {draft.source === 'environment' && <EnvironmentChoice {...part} />}
        {draft.source === 'template' && <TemplateChoice {...part} />}
        {draft.source === 'image' && <OwnImage {...part} />}
        <Field
          label="Name, optional"
          value={draft.name}
          maxLength={128}
          onValue={(name) => change({ name })}
          rule={action.ruleOf('name')}
        />
        <Variables {...part} />
        <Keys {...part} />
      </div>
    </Card>
  );
}

function EnvironmentChoice({ draft, change, action }: PartProps) {
  const { data, error } = useResource<Environments>('/v1/environments');
  const environments = data.value;
  if (error.value !== undefined) return <Problem error={error.value} />;
  const options = (environments?.frameworks ?? []).flatMap((framework) =>
    (environments?.versions[framework] ?? []).map(
      ({ id, label, variant }) => [`certified:${framework}@${id}`, `${label} (${variant})`] as const,
    ),
  );
  const includes = includesOf(environments, draft.environment);
  return (
    <div>
      <Select
        label="Environment"
        value={draft.environment}
        options={[['', 'The default of the operator'], ...options]}
        onValue={(environment) => change({ environment })}
        {...(includes === '' ? {} : { hint: `Includes ${includes}.` })}
      />
      <Rule action={action} field="environment" />
    </div>
  );
}

function includesOf(environments: Environments | undefined, chosen: string): string {
  const [, framework = '', version] = /^certified:([^@]+)@(.+)$/.exec(chosen) ?? [];
  const variant = environments?.versions[framework]?.find(({ id }) => id === version)?.variant;
  const items = variant === undefined ? [] : (environments?.includes[framework]?.[variant] ?? []);
  return items.map(({ name, version: each }) => (each === undefined ? name : `${name} ${each}`)).join(', ');
}

function TemplateChoice({ draft, change, action }: PartProps) {
  const { data, error } = useResource<Page<Template>>('/v1/templates?limit=200');
  if (error.value !== undefined) return <Problem error={error.value} />;
  const templates = data.value?.data ?? [];
  const chosen = templates.find(({ id }) => id === draft.template);
  const variables = (chosen?.env ?? []).filter(({ user_overridable: isOpen }) => isOpen);
  return (
    <div>
      <Select
        label="Template"
        value={draft.template}
        options={[['', 'Choose one'], ...templates.map(({ id, title }) => [id, title] as const)]}
        onValue={(template) => change({ template })}
        {...(chosen === undefined
          ? {}
          : { hint: `${chosen.description} Needs ${chosen.min_vram_gb} GB of memory per GPU.` })}
      />
      <Rule action={action} field="template_id" />
      {variables.length > 0 && (
        <ul class="small">
          {variables.map(({ key, description, required }) => (
            <li key={key}>
              <code>{key}</code> {required && <b>required, </b>}
              <span class="dim">{description}</span>
            </li>
          ))}
        </ul>
      )}
    </div>
  );
}

function OwnImage({ draft, change, action }: PartProps) {
  const canRead = may('registry_credentials: read');
  const path = canRead ? '/v1/registry-credentials?limit=200' : undefined;
  const credentials = useResource<Page<RegistryCredential>>(path).data.value?.data ?? [];
  const pages = portsOf(draft).filter(({ protocol }) => protocol === 'http');
  const primary = pages.find((port) => port.primary === true);
  return (
    <>
      <Field
        label="Image"
        required
        placeholder="ghcr.io/org/app:1.2"
        value={draft.image}
        onValue={(image) => change({ image })}
        rule={action.ruleOf('image')}
        hint="For linux/amd64. Its registry is asked before anything is created."
      />
      <div>
        <Select
          label="Login for a private image"
          value={draft.credential}
          options={[
            ['', 'None, the image is public'],
            ...credentials.map(({ id, name, registry }) => [id, `${name} (${registry})`] as const),
          ]}
          onValue={(credential) => change({ credential })}
          hint={<Link href="/console/registry-credentials">Store a login</Link>}
        />
        <Rule action={action} field="registry_credential_id" />
      </div>
      <Field
        label="Ports"
        placeholder="8080/http 5432/tcp"
        value={draft.ports}
        onValue={(ports) => change({ ports })}
        rule={ruleAfterLabel(action, 'ports')}
        hint="http ports are served behind a login, tcp ports are open to everybody."
      />
      <Select
        label="Primary port"
        value={primary === undefined ? '' : String(primary.port)}
        options={[['', 'None'], ...pages.map(({ port }) => [String(port), String(port)] as const)]}
        onValue={(next) => change({ primary: next })}
        hint="The http port that is served at the app URL."
      />
      <Arguments
        label="Entrypoint"
        argv={draft.entrypoint}
        onArgv={(entrypoint) => change({ entrypoint })}
        rule={ruleAfterLabel(action, 'entrypoint')}
        hint="It replaces the ENTRYPOINT of the image, and drops its CMD unless there is a command."
      />
      <Arguments
        label="Command"
        argv={draft.cmd}
        onArgv={(cmd) => change({ cmd })}
        rule={ruleAfterLabel(action, 'cmd')}
        hint="It replaces the CMD of the image."
      />
    </>
  );
}

interface ArgumentsProps {
  label: string;
  argv: Argv;
  onArgv(argv: Argv): void;
  rule: string | undefined;
  hint: string;
}

function Arguments({ label, argv, onArgv, rule, hint }: ArgumentsProps) {
  return (
    <div class="stack tight">
      <Select
        label={label}
        value={argv.kind}
        options={[
          ['own', "The image's own"],
          ['none', 'None'],
          ['typed', 'These arguments'],
        ]}
        onValue={(kind) => onArgv({ ...argv, kind })}
        {...(argv.kind === 'typed' ? {} : { hint, rule })}
      />
      {argv.kind === 'typed' && (
        <TextField
          label={`${label}, one argument on each line`}
          value={argv.text}
          onValue={(text) => onArgv({ ...argv, text })}
          hint={hint}
          rule={rule}
        />
      )}
    </div>
  );
}

function Variables({ draft, change, action }: PartProps) {
  const id = useId();
  const rule = ruleBelow(action, 'env');
  return (
    <label class="field">
      <span id={nameOf(id)}>Variables</span>
      <textarea
        rows={3}
        placeholder="NAME=value"
        spellcheck={false}
        value={draft.env}
        {...spoken(id, { isDescribed: true, rule })}
        onInput={(event) => change({ env: event.currentTarget.value, lacksValues: false })}
      />
      <small id={id} class={rule === undefined ? undefined : 'err'}>
        {rule ?? 'One on each line. Kept encrypted and never shown.'}
      </small>
    </label>
  );
}

function Keys({ draft, change, action }: PartProps) {
  const { rows, error } = useAllPages<SshKey>(may('ssh_keys: read') ? '/v1/ssh-keys' : undefined);
  const keys = rows ?? [];
  const all = keys.map(({ id }) => id);
  const chosen = draft.keys ?? all;
  const toggle = (id: string): void =>
    change({ keys: chosen.includes(id) ? chosen.filter((each) => each !== id) : [...chosen, id] });
  return (
    <fieldset class="field">
      <legend>SSH keys</legend>
      <label class="check">
        <input
          type="checkbox"
          checked={draft.keys === undefined}
          onChange={() => change({ keys: draft.keys === undefined ? all : undefined })}
        />
        All keys, also later ones
      </label>
      {draft.keys !== undefined &&
        keys.map(({ id, name, fingerprint }) => (
          <label key={id} class="check">
            <input type="checkbox" checked={chosen.includes(id)} onChange={() => toggle(id)} />
            <span>
              {name} <code class="quiet">{fingerprint.slice(0, 14)}…</code>
            </span>
          </label>
        ))}
      {rows?.length === 0 && (
        <small>
          There is no key yet. <Link href="/console/ssh-keys">Add one</Link>, or log in with the browser terminal.
        </small>
      )}
      {error !== undefined && <Problem error={error} />}
      <Rule action={action} field="ssh_key_ids" />
    </fieldset>
  );
}

/** Shows the rule that a part of the form breaks. It is for parts that are not a `Field`, which shows its own rule. */
export function Rule({ action, field }: { action: Action; field: string }) {
  const rule = ruleBelow(action, field);
  return rule === undefined ? null : <small class="err">{rule}</small>;
}

/** The first broken rule of a field or of one of its members, like `ports.0.port` or `ports[0].port`. It begins with the name of the field. */
function ruleBelow(action: Action, field: string): string | undefined {
  const broken = brokenBelow(action, field);
  return broken === undefined ? undefined : `${broken.field} ${broken.rule}`;
}

/** The same for a `Field`, which writes its label in front of it. */
function ruleAfterLabel(action: Action, field: string): string | undefined {
  const broken = brokenBelow(action, field);
  if (broken === undefined || broken.field === field) return broken?.rule;
  return `(${broken.field}) ${broken.rule}`;
}

function brokenBelow({ error }: Action, field: string): { field: string; rule: string } | undefined {
  return error?.errors.find(
    (each) => each.field === field || each.field.startsWith(`${field}.`) || each.field.startsWith(`${field}[`),
  );
}
