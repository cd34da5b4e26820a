// The screens of customers.
import type { Screen } from '../core/screen.ts';

export const CUSTOMER_SCREENS: readonly Screen[] = [
  {
    path: '/console/launch',
    title: 'Launch',
    group: 'Rent',
    scope: 'instances: write',
    load: async () => (await import('./launch.tsx')).Launch,
  },
  {
    path: '/console/instances',
    title: 'Instances',
    group: 'Rent',
    scope: 'instances: read',
    load: async () => (await import('./instances.tsx')).Instances,
  },
  {
    path: '/console/instances/:id',
    title: 'Instance',
    scope: 'instances: read',
    load: async () => (await import('./instance-page.tsx')).InstancePage,
  },
];
