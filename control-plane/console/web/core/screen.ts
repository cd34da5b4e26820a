// The description of a screen. Each folder of screens has a list of them. The router, the navigation, the palette and the tests read the lists.
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
  /** The group of the navigation that lists the screen. If it is left out, the screen is reached only from other screens. */
  group?: Group;
  /** Scope that a session needs to see the screen in the navigation, like `instances: read`. `operator`: only operators of the installation. */
  scope?: string;
  /** True if the screen can be seen without a sign-in. */
  isOpen?: boolean;
  load(): Promise<ComponentType<ScreenProps>>;
}
