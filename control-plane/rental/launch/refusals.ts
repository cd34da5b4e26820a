// Error texts for images that cannot be pulled: whose fault it is, and what to do about it.
import { ServiceError } from '../../../shared/errors.ts';
import { hostOf, type ImageReference, invalidReference, referenceText } from './reference.ts';

/** Used if a registry sends no Retry-After. */
const RETRY_SECONDS = 10;
const RETRY_SECONDS_LIMITED = 60;
const RETRY_SECONDS_MAX = 3_600;

/** The image does not exist, may not be pulled, or cannot run. `why` continues "the image ...". */
export function unavailable(reference: ImageReference, why: string): ServiceError {
  const detail = `The image ${referenceText(reference)} ${why}.`;
  return new ServiceError('image_unavailable', { detail, errors: [{ field: 'image', rule: why }] });
}

/** The registry, not the image, is at fault. `why` describes what it did. */
export function unreachable(reference: ImageReference, why: string, retryAfterSeconds = RETRY_SECONDS): ServiceError {
  const detail = `The registry ${reference.registry} could not be asked about the image: ${why}. Nothing was created; try again later.`;
  return new ServiceError('registry_unreachable', { detail, retryAfterSeconds });
}

/** `url` has a blocked address: that of the registry, or of its redirect. */
export function blocked(reference: ImageReference, url: string): ServiceError {
  const { registry } = reference;
  return URL.parse(url)?.host === new URL(`https://${hostOf(registry)}`).host
    ? invalidReference(
        `must name a registry at a public address, which ${registry} is not; the operator can allow private ones`,
      )
    : invalidReference(`must name a registry that leads to public https addresses alone, which ${registry} does not`);
}

/** The error for an answer that is not a success. Docker Hub answers 401 for repositories that do not exist. */
export function refused(
  { reference, login }: { reference: ImageReference; login: object | undefined },
  status: number,
  retryAfter?: string,
): ServiceError {
  if (status === 429) {
    return unreachable(
      reference,
      'it answers that there are too many requests',
      secondsOf(retryAfter) ?? RETRY_SECONDS_LIMITED,
    );
  }
  if (status >= 500) return unreachable(reference, `it answers with status ${status}`, secondsOf(retryAfter));
  if (status === 404) return unavailable(reference, 'does not exist in its registry; check its name and tag');
  if (status === 401 || status === 403) {
    return unavailable(
      reference,
      login === undefined
        ? 'does not exist or is private; check its name, or name a stored login as registry_credential_id'
        : 'cannot be pulled with this registry credential: its login is wrong, or it may not pull this image, or the image does not exist',
    );
  }
  return unavailable(reference, `was refused by its registry with status ${status}`);
}

function secondsOf(retryAfter: string | undefined): number | undefined {
  return /^\d{1,9}$/.test(retryAfter ?? '') ? Math.min(Number(retryAfter), RETRY_SECONDS_MAX) : undefined;
}
