-- Organisations, their API keys (hashes only) and their SSH public keys.
create table orgs (
  id TEXT not null primary key,
  name TEXT not null,
  created_ms INTEGER not null
) STRICT;

create table api_keys (
  id TEXT not null primary key,
  org_id TEXT not null references orgs (id),
  name TEXT not null,
  prefix TEXT not null,
  -- SHA-256 in hex. The keys carry 256 random bits, so a slow hash would protect nothing.
  key_hash TEXT not null unique,
  -- JSON array, as they were asked for
  scopes TEXT not null,
  created_ms INTEGER not null,
  expires_ms INTEGER,
  last_used_ms INTEGER,
  revoked_ms INTEGER
) STRICT;
create index api_keys_org on api_keys (org_id, created_ms);

create table ssh_keys (
  id TEXT not null primary key,
  org_id TEXT not null references orgs (id),
  name TEXT not null,
  -- type and base64, without the comment
  public_key TEXT not null,
  fingerprint TEXT not null,
  created_ms INTEGER not null,
  unique (org_id, fingerprint)
) STRICT;
create index ssh_keys_page on ssh_keys (org_id, created_ms, id);
