-- A program may make a key for each of its jobs. The living keys are counted and ended without a walk over all that have ended.
create index api_keys_living on api_keys (org_id, expires_ms) where revoked_ms is null;
drop index api_keys_user;
create index api_keys_user on api_keys (user_id, org_id) where user_id is not null and revoked_ms is null;
-- When a key ended, or will end: what is old enough to be forgotten.
create index api_keys_by_end on api_keys (coalesce(revoked_ms, expires_ms));
