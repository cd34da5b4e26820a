// The listener of applications, if its port is taken.
import { once } from 'node:events';
import { type AddressInfo, createServer } from 'node:net';
import { expect, test } from 'vitest';
import { openAddressLimit } from '../../../control-plane/base/http/address-limit.ts';
import { openAppServer } from '../../../control-plane/rental/edge/app-server.ts';
import { systemClock } from '../../../shared/clock.ts';
import { createLog } from '../../../shared/log.ts';

test('the error of a port that another process has names the setting, and what to do', async () => {
  const other = createServer().listen(0, '127.0.0.1');
  await once(other, 'listening');
  const { port } = other.address() as AddressInfo;
  const deps = { clock: systemClock(), log: createLog('test', 'silent') };
  const nothing = (): void => undefined;
  const server = openAppServer({
    ...deps,
    proxy: { onRequest: nothing, onUpgrade: nothing, close: nothing },
    tls: undefined,
    limit: openAddressLimit({ max: 1, trusted: [] }, deps),
  });
  await expect(server.listen({ host: '127.0.0.1', port })).rejects.toThrow(
    `apps.listen: another process listens on 127.0.0.1 port ${port}: end it, or set another port`,
  );
  await new Promise((resolve) => other.close(resolve));
});
