// The interface of this room: resolves what a launch runs, and gives hosts the login to pull its image.
import type { CreateInstance } from '../../../shared/api/instance.ts';
import type { Clock } from '../../../shared/clock.ts';
import { fail, failField } from '../../../shared/errors.ts';
import type { Ids } from '../../../shared/ids.ts';
import type { Log } from '../../../shared/log.ts';
import type { PullLogin } from '../../../shared/protocol/link.ts';
import { commandOf } from '../../../shared/protocol/workload.ts';
import { IMAGE_READS_BURST, IMAGE_READS_PER_HOUR } from '../../../shared/limits.ts';
import type { Db } from '../../base/db/db.ts';
import { openBuckets } from '../../base/http/rate-limits.ts';
import type { Sealing } from '../../base/http/sealing.ts';
import { type Credentials, openCredentials } from './credentials.ts';
import { openSemaphore } from '../../../shared/semaphore.ts';
import type { ImageLogin, Images } from './images.ts';
import { type ImageReference, parseReference, pinnedText } from './reference.ts';
import { unavailable } from './refusals.ts';
import { type ImageRequest, type Presets, type Runnable, type RunnableDeps, runnableOf } from './runnable.ts';

export interface LaunchRoom {
  credentials: Credentials;
  presets: Presets;
  /**
   * Resolves what the request runs. It proves that the image exists, that the organisation may pull it, that our hosts can run it, and that
   * it has a command. It sends requests to registries and to the model hub, so it must not run in a transaction. `mayAsk` is called before
   * the registry of an own image is asked; what it throws is thrown.
   * @throws ServiceError `image_reference_invalid`, `image_unavailable`, `registry_unreachable`, `environment_unavailable`,
   *   `validation_failed`
   */
  runnable(orgId: string, request: CreateInstance, mayAsk?: () => Promise<void>): Promise<Runnable>;
  /**
   * The login for a host that pulls `image` now; null if none is needed. It may wait for the registry.
   * @throws ServiceError as `runnable`
   */
  pullLogin(orgId: string, image: string, credentialId: string): Promise<PullLogin | null>;
}

/** Each check may keep a connection open for its whole duration, to a host that the customer names. */
const CHECKS_PER_ORG_MAX = 16;
const TURN_WAIT_MS = 15_000;
const DOCKER_HUB = 'docker.io';

export function openLaunch(deps: {
  db: Db;
  clock: Clock;
  ids: Ids;
  log: Log;
  sealing: Sealing;
  images: Pick<Images, 'verify' | 'pullLogin' | 'mayAsk'>;
  presets: Presets;
  modelHub: RunnableDeps['modelHub'];
}): LaunchRoom {
  const { db, log, images } = deps;
  const credentials = openCredentials(deps);
  const turns = openSemaphore(deps.clock, CHECKS_PER_ORG_MAX);
  const takeRead = openHubReads(deps.clock);

  const loginFor = async (orgId: string, id: string, { registry }: ImageReference): Promise<ImageLogin> => {
    const found = await credentials.open(db.read, orgId, id);
    if (found === undefined)
      failField('registry_credential_id', `must be one of GET /v1/registry-credentials, which ${id} is not`);
    if (found.registry !== registry) {
      failField('registry_credential_id', `is for ${found.registry}, but the image is at ${registry}`);
    }
    return found;
  };

  const verifyImage = async (
    orgId: string,
    request: ImageRequest,
    { whose, mayAsk }: { whose: 'customer' | 'operator'; mayAsk: (() => Promise<void>) | undefined },
  ): Promise<string> => {
    const reference = parseReference(request.image);
    const credentialId = request.registry_credential_id;
    const login = credentialId === undefined ? undefined : await loginFor(orgId, credentialId, reference);
    const onRead = (): void => {
      if (whose === 'customer' && login === undefined && reference.registry === DOCKER_HUB) takeRead(orgId);
    };
    const facts = await turns.run(orgId, TURN_WAIT_MS, () => images.verify(reference, login, { mayAsk, onRead }));
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
    log.debug({ org_id: orgId, image, bytes: facts.layersBytes }, 'an image was verified');
    return image;
  };

  return {
    credentials,
    presets: deps.presets,
    runnable: (orgId, request, mayAsk) =>
      runnableOf(orgId, request, {
        ...deps,
        verifyImage: (org, image, whose) =>
          verifyImage(org, image, { whose, mayAsk: whose === 'customer' ? mayAsk : undefined }),
      }),
    pullLogin: async (orgId, image, credentialId) => {
      const reference = parseReference(image);
      const login = await credentials.open(db.read, orgId, credentialId);
      if (login === undefined) throw unavailable(reference, 'cannot be pulled: its registry credential was deleted');
      return images.pullLogin(reference, login);
    },
  };
}

/** Stands for the command of an image. Only the existence of the command is known here, not its text. */
function words(areThere: boolean): string[] {
  return areThere ? ['as the image says'] : [];
}

/** Docker Hub counts what this service reads without a login, for all organisations together. @throws ServiceError `rate_limit_exceeded` */
function openHubReads(clock: Clock): (orgId: string) => void {
  const reads = openBuckets({ perSecond: IMAGE_READS_PER_HOUR / 3_600, burst: IMAGE_READS_BURST }, clock);
  return (orgId) => {
    const { waitMs } = reads.take(orgId);
    if (waitMs === 0) return;
    fail('rate_limit_exceeded', {
      detail:
        'This organisation has named many new images of Docker Hub without a login. Store a login (POST /v1/registry-credentials) and name it in the launch, use an image that was launched before, or wait.',
      retryAfterSeconds: waitMs / 1_000,
    });
  };
}
