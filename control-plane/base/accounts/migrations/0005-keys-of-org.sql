-- With the id, the index has the whole order of a page. Otherwise PostgreSQL may read the newer keys of all other organisations first.
drop index api_keys_org;
create index api_keys_org on api_keys (org_id, created_ms, id);
