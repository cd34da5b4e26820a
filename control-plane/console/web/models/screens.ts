// The screens of models: the catalog with its playground, files, and fine-tuning.
import type { Screen } from '../core/screen.ts';

export const MODEL_SCREENS: readonly Screen[] = [];
