// All screens of the console in the order of the navigation.
import { ACCOUNT_SCREENS } from './account/screens.ts';
import type { Screen } from './core/screen.ts';
import { CUSTOMER_SCREENS } from './customer/screens.ts';
import { MODEL_SCREENS } from './models/screens.ts';
import { MONEY_SCREENS } from './money/screens.ts';
import { OPERATOR_SCREENS } from './operator/screens.ts';
import { SUPPLIER_SCREENS } from './supplier/screens.ts';

/** The screen to which `/console` leads. */
export const START = '/console/instances';

export const SCREENS: readonly Screen[] = [
  ...CUSTOMER_SCREENS,
  ...MODEL_SCREENS,
  ...SUPPLIER_SCREENS,
  ...MONEY_SCREENS,
  ...ACCOUNT_SCREENS,
  ...OPERATOR_SCREENS,
];
