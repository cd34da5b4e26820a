// A request of an operator is let in before its body is read. Whoever holds the body back until the session has ended changes nothing.
import { afterEach, beforeEach, expect, test } from 'vitest';
import { operatorSessionRoutes } from '../../../control-plane/admin/admin.ts';
import type { Call } from '../../../control-plane/base/http/route.ts';
import { userWithEmail } from '../../../control-plane/base/users/store.ts';
import { brought } from '../../../control-plane/brings.ts';
import { type Api, openApi } from '../../contract/api.ts';
import { addPerson } from '../../kit/people.ts';

let api: Api;
beforeEach(async () => {
  api = await openApi();
});
afterEach(() => api.close());

const NEW = { email: 'thief@example.com', name: 'T', is_operator: true };

test('an operator whose session has ended meanwhile adds no other operator', async () => {
  const { sessions } = api.world.rooms.users;
  const operator = await addPerson(api.world, undefined, { isOperator: true, isStrong: true });
  const caller = await sessions.authenticate(operator.token);
  const route = operatorSessionRoutes(brought(api.world.brings(), 'operatorRoutes'), api.world.audit).find(
    ({ operationId }) => operationId === 'adminAddUser',
  );
  const finish = async (email: string): Promise<unknown> => {
    const call = { caller, body: { ...NEW, email }, params: {}, requestId: 'req_1' };
    return route?.handler(call as unknown as Call<unknown, unknown, unknown>);
  };
  await finish('first@example.com');
  expect(await userWithEmail(api.world.db.read, 'first@example.com')).toMatchObject({ is_operator: true });
  await sessions.end(operator.userId, operator.sessionId);
  await expect(finish(NEW.email)).rejects.toMatchObject({ code: 'unauthorized' });
  expect(await userWithEmail(api.world.db.read, NEW.email)).toBeUndefined();
});
