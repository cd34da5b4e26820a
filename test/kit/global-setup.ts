// Gives the postgres lane its server; a test takes the URL with inject('postgresUrl').
import type { TestProject } from 'vitest/node';
import { startPostgres } from './postgres.ts';

export async function setup(project: TestProject): Promise<() => Promise<void>> {
  const server = await startPostgres();
  project.provide('postgresUrl', server.url);
  return () => server.stop();
}
