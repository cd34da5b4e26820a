// All screens of the console in the order of the navigation.
import { ACCOUNT_SCREENS } from './account/screens.ts';
import type { Screen } from './core/screen.ts';
import { CUSTOMER_SCREENS } from './customer/screens.ts';
import { MODEL_SCREENS } from './models/screens.ts';
import { MONEY_SCREENS } from './money/screens.ts';
import { OPERATOR_SCREENS } from './operator/screens.ts';
import { SUPPLIER_SCREENS } from './supplier/screens.ts';

/** The screen that `/console` opens for people who may see no other one. */
export const WITHOUT_SCOPE = '/console/security';

export const SCREENS: readonly Screen[] = [
  ...CUSTOMER_SCREENS,
  ...MODEL_SCREENS,
  ...SUPPLIER_SCREENS,
  ...MONEY_SCREENS,
  ...ACCOUNT_SCREENS,
  ...OPERATOR_SCREENS,
];

/** The screen that `/console` opens for members of an organisation who may see it. */
export const START = screenAt('/console/instances');

function screenAt(path: string): Screen {
  const screen = SCREENS.find((each) => each.path === path);
  if (screen === undefined) throw new Error(`there is no screen at ${path}`);
  return screen;
}
