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
  {
    path: '/console/reservations',
    title: 'Reservations',
    group: 'Rent',
    scope: 'instances: read',
    load: async () => (await import('./reservations.tsx')).Reservations,
  },
  {
    path: '/console/ssh-keys',
    title: 'SSH keys',
    group: 'Rent',
    scope: 'ssh_keys: read',
    load: async () => (await import('./ssh-keys.tsx')).SshKeys,
  },
  {
    path: '/console/registry-credentials',
    title: 'Registry logins',
    group: 'Rent',
    scope: 'registry_credentials: read',
    load: async () => (await import('./registry-credentials.tsx')).RegistryCredentials,
  },
];
