// What a screen is. The wings list their screens; the router, the navigation, the palette and the tests of every screen read those lists.
import type { ComponentType } from 'preact';

export interface ScreenProps {
  /** The parts of the address that the path names, like `id`. */
  params: Record<string, string>;
}

export const GROUPS = ['Rent', 'Models', 'Supply', 'Account', 'Operate'] as const;
type Group = (typeof GROUPS)[number];

export interface Screen {
  /** The address; a part that begins with `:` is a parameter. */
  path: string;
  title: string;
  /** The group of the navigation that lists the screen. Left out: other screens lead to it. */
  group?: Group;
  /** Only sessions with this scope see it in the navigation, like `instances: read`; `operator`: people who operate the installation. */
  scope?: string;
  /** Nobody has to sign in for it. */
  isOpen?: boolean;
  load(): Promise<ComponentType<ScreenProps>>;
}
