// The postgres lane's server answers, and is a server of its own.
import { Client } from 'pg';
import { expect, inject, test } from 'vitest';

test('the server of the lane takes connections and does not wait for the disk', async () => {
  const client = new Client({ connectionString: inject('postgresUrl') });
  await client.connect();
  const { rows } = await client.query<{ fsync: string }>('show fsync');
  await client.end();
  expect(rows).toEqual([{ fsync: 'off' }]);
});
