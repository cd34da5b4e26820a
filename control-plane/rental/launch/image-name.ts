// The schema of an image reference in a file of the operator.
import { z } from 'zod';
import { messageOf, ServiceError } from '../../../shared/errors.ts';
import { IMAGE_REFERENCE_CHARS_MAX } from '../../../shared/limits.ts';
import { parseReference } from './reference.ts';

export const ImageName = z
  .string()
  .max(IMAGE_REFERENCE_CHARS_MAX)
  .superRefine((text, context) => {
    try {
      parseReference(text);
    } catch (error) {
      const message = error instanceof ServiceError ? error.details.detail : messageOf(error);
      context.addIssue({ code: 'custom', message });
    }
  });
