// The screens of money and of webhooks.
import type { Screen } from '../core/screen.ts';

export const MONEY_SCREENS: readonly Screen[] = [
  {
    path: '/console/usage',
    title: 'Usage and balance',
    group: 'Account',
    scope: 'billing: read',
    load: async () => (await import('./usage.tsx')).Usage,
  },
];
