// Builds the console once, before the tests that open it in a browser.
import { buildConsole } from '../../installer/console.ts';

export async function setup(): Promise<void> {
  await buildConsole();
}
