// A model hub in memory, with the models that a test sets.
import type { ModelHub, Weights } from '../../control-plane/rental/launch/model-hub.ts';

export interface FakeModelHub extends Pick<ModelHub, 'sizeOf'> {
  /** Model -> size of its weights, or why it is not known. */
  known: Map<string, Weights>;
}

export function fakeModelHub(): FakeModelHub {
  const known = new Map<string, Weights>();
  return { known, sizeOf: async (model) => known.get(model) ?? { unknown: 'does not exist on the model hub' } };
}
