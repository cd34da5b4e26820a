-- One row for each uploaded file that is whole. Its content is a blob, which is written before the row and removed after it.
create table files (
  id TEXT not null primary key,
  org_id TEXT not null,
  blob_key TEXT not null unique,
  filename TEXT not null,
  purpose TEXT not null,
  bytes INTEGER not null check (bytes >= 0),
  sha256 TEXT not null,
  report TEXT not null,
  created_ms INTEGER not null
) STRICT;

-- Ids sort by time.
create index files_of_org on files (org_id, id);
