// The curve of a job's loss, from the figures in its events. All of it is pure.
import type { FineTuningEvent } from '../../../../shared/api/fine-tuning.ts';

export interface LossPoint {
  step: number;
  loss: number;
}

/** One point for each step. If a step was trained again, because a machine was lost, its last loss counts. */
export function lossOf(events: readonly FineTuningEvent[]): LossPoint[] {
  const points = new Map<number, number>();
  for (const { type, data } of events) {
    const { step, loss } = data;
    if (type === 'metrics' && typeof step === 'number' && typeof loss === 'number') points.set(step, loss);
  }
  return [...points].map(([step, loss]) => ({ step, loss })).toSorted((a, b) => a.step - b.step);
}

/** The path of the curve in a square of 100 by 100; the lower edge is a loss of 0. */
export function pathOf(points: readonly LossPoint[], top: number): string {
  const [first, last] = [points.at(0)?.step ?? 0, points.at(-1)?.step ?? 0];
  const width = Math.max(1, last - first);
  return points
    .map(({ step, loss }, index) => {
      const x = (((step - first) / width) * 100).toFixed(2);
      return `${index === 0 ? 'M' : 'L'}${x} ${(100 - (loss / top) * 100).toFixed(2)}`;
    })
    .join('');
}
