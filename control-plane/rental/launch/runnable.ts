// Resolves what a launch runs: own image, template or environment. It uses the network, so it must run outside of transactions.
import type { CreateInstance, Port } from '../../../shared/api/instance.ts';
import { fail, failField, ServiceError } from '../../../shared/errors.ts';
import type { Log } from '../../../shared/log.ts';
import { type Environments, imageOf } from './environments.ts';
import { fillTemplate, MODEL, type Template } from './templates.ts';
import type { ModelHub } from './model-hub.ts';

/** An image and the command to run in it. */
export interface ImageRequest {
  image: string;
  entrypoint?: string[] | undefined;
  cmd?: string[] | undefined;
  registry_credential_id?: string | undefined;
}

/** The templates and environments that the operator offers. The operator may change them, so they are read at each use. */
export interface Presets {
  /** The key is the id of the template. */
  templates: ReadonlyMap<string, Template>;
  environments: Environments;
}

export interface Runnable {
  /** Pinned to the digest that was verified: `<image>@sha256:...`. */
  image: string;
  /** True if the customer named the image. Other images are never shown. */
  ownImage: boolean;
  registryCredentialId: string | null;
  /** The command in place of the image's own. Null: the image's own is used. An empty array: there is none. */
  entrypoint: string[] | null;
  cmd: string[] | null;
  env: Record<string, string>;
  ports: Port[];
  /** The VRAM that the template needs on each GPU. */
  minVramGb: number;
  /** The model that all GPUs load together; null if there is none, or if its size is not known. */
  model: { name: string; bytes: number } | null;
  warnings: string[];
}

export interface RunnableDeps {
  log: Log;
  presets: Presets;
  modelHub: Pick<ModelHub, 'sizeOf'>;
  /** The image pinned to its digest. @throws ServiceError if it cannot be pulled or has no command */
  verifyImage(orgId: string, request: ImageRequest, whose: 'customer' | 'operator'): Promise<string>;
}

/** Customers log in to an environment. This command keeps it up until it is deleted. */
const IDLE = ['sleep', 'infinity'];

/** @throws ServiceError for what specification 4.3 refuses about image, template and environment */
export async function runnableOf(orgId: string, request: CreateInstance, deps: RunnableDeps): Promise<Runnable> {
  const { image, template_id: templateId } = request;
  if (image !== undefined) return ownImage(orgId, { ...request, image }, deps);
  return templateId === undefined ? environment(orgId, request, deps) : template(orgId, request, templateId, deps);
}

const PLAIN = { registryCredentialId: null, minVramGb: 0, model: null };

async function ownImage(
  orgId: string,
  request: CreateInstance & { image: string },
  deps: RunnableDeps,
): Promise<Runnable> {
  return {
    ...PLAIN,
    warnings: [],
    image: await deps.verifyImage(orgId, request, 'customer'),
    ownImage: true,
    registryCredentialId: request.registry_credential_id ?? null,
    entrypoint: request.entrypoint ?? null,
    cmd: request.cmd ?? null,
    env: request.env ?? {},
    ports: request.ports ?? [],
  };
}

async function environment(orgId: string, request: CreateInstance, deps: RunnableDeps): Promise<Runnable> {
  const named = request.environment;
  const image = imageOf(deps.presets.environments, named);
  const what = {
    field: 'environment',
    text: named === undefined ? 'the default environment' : `the environment ${named}`,
  };
  return {
    ...PLAIN,
    warnings: [],
    image: await verifyOurs(orgId, { image, cmd: IDLE }, what, deps),
    ownImage: false,
    entrypoint: null,
    cmd: IDLE,
    env: request.env ?? {},
    ports: [],
  };
}

async function template(
  orgId: string,
  request: CreateInstance,
  templateId: string,
  deps: RunnableDeps,
): Promise<Runnable> {
  const found = deps.presets.templates.get(templateId);
  if (found === undefined)
    return failField('template_id', `must be one of GET /v1/templates, which ${templateId} is not`);
  const { env, entrypoint, cmd } = fillTemplate(found, request.env ?? {}, request.gpu_count);
  const what = { field: 'template_id', text: `the template ${templateId}` };
  const wanted = { image: found.image, entrypoint: entrypoint ?? undefined, cmd: cmd ?? undefined };
  const name = found.serves_model ? env[MODEL] : undefined;
  const [image, weights] = await Promise.all([
    verifyOurs(orgId, wanted, what, deps),
    name === undefined ? undefined : deps.modelHub.sizeOf(name),
  ]);
  const isKnown = weights !== undefined && 'bytes' in weights;
  return {
    ...PLAIN,
    image,
    ownImage: false,
    entrypoint,
    cmd,
    env,
    ports: found.ports,
    minVramGb: found.min_vram_gb,
    model: isKnown && name !== undefined ? { name, bytes: weights.bytes } : null,
    warnings:
      weights === undefined || isKnown
        ? []
        : [`The model ${name} ${weights.unknown}. It was not checked whether it fits into the GPUs.`],
  };
}

/** Checks an image of the operator like an own image, but with errors that do not name it. */
async function verifyOurs(
  orgId: string,
  request: ImageRequest,
  what: { field: string; text: string },
  { log, verifyImage }: RunnableDeps,
): Promise<string> {
  try {
    return await verifyImage(orgId, request, 'operator');
  } catch (error) {
    if (!(error instanceof ServiceError) || error.code === 'rate_limit_exceeded') throw error;
    log.error({ image: request.image, err: error }, 'an image that the operator offers cannot be pulled');
    if (error.code === 'registry_unreachable') {
      const { retryAfterSeconds } = error.details;
      fail('registry_unreachable', {
        detail: `The registry that holds ${what.text} could not be asked about it. Nothing was created; try again later.`,
        ...(retryAfterSeconds === undefined ? {} : { retryAfterSeconds }),
      });
    }
    const rule = 'must be one whose image can be pulled';
    return fail('environment_unavailable', {
      detail: `The image of ${what.text} cannot be pulled at present, and only the operator can correct that. Choose another one, or launch an own image.`,
      errors: [{ field: what.field, rule }],
    });
  }
}
