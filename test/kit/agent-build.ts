// Builds what the agent starts outside itself once, before the tests that run holders and guests.
import { buildAgentPrograms } from '../../installer/agent-programs.ts';

export async function setup(): Promise<void> {
  await buildAgentPrograms();
}
