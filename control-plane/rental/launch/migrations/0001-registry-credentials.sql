-- Logins at image registries. A row never changes: another password is another credential.
create table registry_credentials (
  id TEXT not null primary key,
  org_id TEXT not null,
  name TEXT not null,
  -- `host` or `host:port`; `docker.io` for Docker Hub
  registry TEXT not null,
  username TEXT not null,
  sealed_password TEXT not null,
  created_ms INTEGER not null
) STRICT;
create index registry_credentials_page on registry_credentials (org_id, created_ms, id);
