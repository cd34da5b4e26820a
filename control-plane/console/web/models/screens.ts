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
  {
    path: '/console/model-costs',
    title: 'Model costs',
    group: 'Models',
    scope: 'billing: read',
    load: async () => (await import('./model-costs.tsx')).ModelCosts,
  },
  {
    path: '/console/fine-tuning',
    title: 'Fine-tuning',
    group: 'Models',
    scope: 'finetuning: read',
    load: async () => (await import('./fine-tuning.tsx')).FineTuning,
  },
  {
    path: '/console/fine-tuning/:id',
    title: 'Fine-tuning job',
    scope: 'finetuning: read',
    load: async () => (await import('./job.tsx')).Job,
  },
  {
    path: '/console/files',
    title: 'Files',
    group: 'Models',
    scope: 'files: read',
    load: async () => (await import('./files.tsx')).Files,
  },
];
