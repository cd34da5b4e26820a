// Operations (specification 2.6, 3.2): any sequence of moves stays within the table of states, and the first outcome counts.
import fc from 'fast-check';
import { afterEach, beforeEach, expect, test } from 'vitest';
import { type OperationRow, operationView } from '../../../../control-plane/base/operations/operations.ts';
import { mayMove, OPERATION_STATES, type OperationState } from '../../../../shared/states.ts';
import { openWorld, type World } from '../../../kit/world.ts';

let world: World;
beforeEach(async () => {
  world = await openWorld();
});
afterEach(() => world.close());

const KEY = 'apk_mine';
const create = (): Promise<OperationRow> =>
  world.db.tx('create', async (tx) => {
    const row = world.rooms.operations.make({ kind: 'instance.create', orgId: 'o', principalId: KEY });
    await world.rooms.operations.insert(tx, row);
    return row;
  });
const find = async (id: string): Promise<OperationRow | undefined> =>
  world.rooms.operations.find(world.db.read, id, KEY);

// Specification 2.6: completed_at is null until a final state.
// Specification 3.2: succeeded, failed and cancelled are terminal.
test('any sequence of moves stays within the table, and completed_at is set exactly at the end', async () => {
  const moves = fc.array(fc.constantFrom('in_progress', 'succeeded', 'failed', 'cancelled'), { maxLength: 8 });
  await fc.assert(
    fc.asyncProperty(moves, async (targets) => {
      const { id } = await create();
      let state: OperationState = 'pending';
      let completedMs: number | null = null;
      for (const to of targets) {
        await world.clock.advance(1000);
        const error = to === 'failed' ? { error: { code: 'operation_failed' as const, detail: 'why' } } : {};
        await world.db.tx('move', (tx) => world.rooms.operations.move(tx, id, to, { resourceId: 'i-1', ...error }));
        if (mayMove(OPERATION_STATES, state, to)) {
          state = to;
          if (OPERATION_STATES[to].length === 0) completedMs = world.clock.now();
        }
        const row = await find(id);
        expect(row).toMatchObject({ state, completed_ms: completedMs });
        expect(row?.resource_id).toBe(state === 'pending' ? null : 'i-1');
        expect(row?.error_code).toBe(state === 'failed' ? 'operation_failed' : null);
      }
    }),
    { seed: 41, numRuns: 60 },
  );
});

test('progress is stored while the operation is open, and not afterwards', async () => {
  const { id } = await create();
  const tell = (progress: string): Promise<void> =>
    world.db.tx('progress', (tx) => world.rooms.operations.setProgress(tx, id, progress));
  const shown = async (): Promise<string | undefined> => {
    const row = await find(id);
    return row === undefined ? undefined : operationView(row).progress;
  };
  expect(await shown()).toBeUndefined();
  await tell('pulling the image');
  expect(await shown()).toBe('pulling the image');
  await world.db.tx('end', async (tx) => world.rooms.operations.move(tx, id, 'cancelled'));
  await tell('too late');
  expect(await shown()).toBeUndefined();
  expect((await find(id))?.progress).toBe('pulling the image');
});
