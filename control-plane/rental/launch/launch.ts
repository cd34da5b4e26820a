// The room: what a launch needs to know before anything is created, and what its host needs to pull its image.
import type { CreateInstance } from '../../../shared/api/instance.ts';
import type { Clock } from '../../../shared/clock.ts';
import { fail, failField } from '../../../shared/errors.ts';
import type { Ids } from '../../../shared/ids.ts';
import type { Log } from '../../../shared/log.ts';
import type { PullLogin } from '../../../shared/protocol/link.ts';
import { commandOf } from '../../../shared/protocol/workload.ts';
import type { Db } from '../../base/db/db.ts';
import type { Sealing } from '../../base/http/sealing.ts';
import { type Credentials, openCredentials } from './credentials.ts';
import { openSemaphore } from './semaphore.ts';
import type { ImageLogin, Images } from './images.ts';
import { type ImageReference, parseReference, pinnedText } from './reference.ts';
import { unavailable } from './refusals.ts';
import { type ImageRequest, type Presets, type Runnable, type RunnableDeps, runnableOf } from './runnable.ts';

/** An image and what is run in it. */
export interface LaunchRoom {
  credentials: Credentials;
  presets: Presets;
  /**
   * What the request runs: its image exists, the organisation may pull it, our hosts can run it, and there is something to run.
   * Asks registries and the model hub, so never in a transaction.
   * @throws ServiceError `image_reference_invalid`, `image_unavailable`, `registry_unreachable`, `environment_unavailable`,
   *   `validation_failed`
   */
  runnable(orgId: string, request: CreateInstance): Promise<Runnable>;
  /**
   * For the host that pulls `image` now; null where no login is needed. May wait for the registry.
   * @throws ServiceError as `runnable`
   */
  pullLogin(orgId: string, image: string, credentialId: string): Promise<PullLogin | null>;
}

/** Each may keep a connection open for as long as a check lasts, to a host that the customer names. */
const CHECKS_PER_ORG_MAX = 16;
const TURN_WAIT_MS = 15_000;

export function openLaunch(deps: {
  db: Db;
  clock: Clock;
  ids: Ids;
  log: Log;
  sealing: Sealing;
  images: Pick<Images, 'verify' | 'pullLogin'>;
  presets: Presets;
  modelHub: RunnableDeps['modelHub'];
}): LaunchRoom {
  const { db, log, images } = deps;
  const credentials = openCredentials(deps);
  const turns = openSemaphore(deps.clock, CHECKS_PER_ORG_MAX);

  const loginFor = async (orgId: string, id: string, { registry }: ImageReference): Promise<ImageLogin> => {
    const found = await credentials.open(db.read, orgId, id);
    if (found === undefined)
      failField('registry_credential_id', `must be one of GET /v1/registry-credentials, which ${id} is not`);
    if (found.registry !== registry) {
      failField('registry_credential_id', `is for ${found.registry}, but the image is at ${registry}`);
    }
    return found;
  };

  const verifyImage = async (orgId: string, request: ImageRequest): Promise<string> => {
    const reference = parseReference(request.image);
    const credentialId = request.registry_credential_id;
    const login = credentialId === undefined ? undefined : await loginFor(orgId, credentialId, reference);
    const facts = await turns.run(orgId, TURN_WAIT_MS, () => images.verify(reference, login));
    if (facts === undefined) {
      fail('rate_limit_exceeded', {
        detail: `More than ${CHECKS_PER_ORG_MAX} images of this organisation are being checked. Try again when some are done.`,
        retryAfterSeconds: 5,
      });
    }
    const wanted = { entrypoint: request.entrypoint ?? null, cmd: request.cmd ?? null };
    const own = { entrypoint: words(facts.hasEntrypoint), cmd: words(facts.hasCmd) };
    if (commandOf(wanted, own).length === 0) {
      throw unavailable(reference, 'has nothing to run: set cmd or entrypoint');
    }
    const image = pinnedText(reference, facts.digest);
    log.info({ org_id: orgId, image, bytes: facts.layersBytes }, 'an image was verified');
    return image;
  };

  return {
    credentials,
    presets: deps.presets,
    runnable: (orgId, request) => runnableOf(orgId, request, { ...deps, verifyImage }),
    pullLogin: async (orgId, image, credentialId) => {
      const reference = parseReference(image);
      const login = await credentials.open(db.read, orgId, credentialId);
      if (login === undefined) throw unavailable(reference, 'cannot be pulled: its registry credential was deleted');
      return images.pullLogin(reference, login);
    },
  };
}

/** Stands for words of an image that are not known here. */
function words(areThere: boolean): string[] {
  return areThere ? ['as the image says'] : [];
}
