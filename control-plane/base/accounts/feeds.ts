// The events of an organisation itself and of its API keys in the live stream.
import type { Feed } from '../events/feeds.ts';
import { apiKeyView, keysOfOrg } from './api-keys.ts';
import { orgsOf, orgView } from './orgs.ts';

export const API_KEY_FEED: Feed = {
  of: 'api_key',
  scope: 'api_keys:read',
  describe: async (query, orgId, ids) =>
    new Map((await keysOfOrg(query, orgId, ids)).map((row) => [row.id, apiKeyView(row)])),
};

/**
 * The events of the organisation itself. Everybody who may read events sees a suspension, because it explains why nothing starts any more.
 */
export const ORG_FEED: Feed = {
  of: 'org',
  scope: 'events:read',
  describe: async (query, orgId, ids) =>
    new Map((await orgsOf(query, ids.includes(orgId) ? [orgId] : [])).map((row) => [row.id, orgView(row)])),
};
