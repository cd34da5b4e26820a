// The screens of models: the catalog with its playground, files, and fine-tuning.
import type { Screen } from '../core/screen.ts';

export const MODEL_SCREENS: readonly Screen[] = [
  {
    path: '/console/models',
    title: 'Models',
    group: 'Models',
    scope: 'serverless:read',
    load: async () => (await import('./models.tsx')).Models,
  },
];
