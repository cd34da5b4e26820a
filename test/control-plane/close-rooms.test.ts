// The end of the control plane: what one room fails to store or to end keeps no other room from closing.
import { expect, test } from 'vitest';
import { closeRooms } from '../../control-plane/loops.ts';

const PARTS = ['leave', 'finish', 'close'] as const;

test.each(PARTS)('a room that fails to %s keeps no other one from closing', async (failing) => {
  const done: string[] = [];
  const room = (name: string): Record<(typeof PARTS)[number], () => Promise<void>> => {
    const part = (what: string) => async (): Promise<void> => {
      if (name === 'second' && what === failing) throw new Error('the disk is full');
      done.push(`${name} ${what}`);
    };
    return { leave: part('leave'), finish: part('finish'), close: part('close') };
  };
  const sockets = async (): Promise<void> => void done.push('sockets');
  const closing = closeRooms([room('first'), room('second'), room('third')], undefined, sockets);
  await expect(closing).rejects.toThrow('the disk is full');
  const all = ['first', 'second', 'third'].flatMap((name) => PARTS.map((what) => `${name} ${what}`));
  expect(done.toSorted()).toEqual([...all.filter((each) => each !== `second ${failing}`), 'sockets'].toSorted());
});
