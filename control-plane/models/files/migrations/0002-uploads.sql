-- A file that comes in parts, over several requests, which may reach several control planes. A row exists for a day after its end.
create table uploads (
  id TEXT not null primary key,
  org_id TEXT not null,
  filename TEXT not null,
  purpose TEXT not null,
  mime_type TEXT not null,
  bytes INTEGER not null check (bytes > 0),
  status TEXT not null,
  -- The parts of the file in their order, and the file. Set when the upload is completed.
  part_ids TEXT,
  file_id TEXT,
  created_ms INTEGER not null,
  expires_ms INTEGER not null,
  check ((status = 'completed') = (file_id is not null))
) STRICT;

create index uploads_of_org on uploads (org_id, status);
create index uploads_by_status on uploads (status, expires_ms);

-- One row for each part that is whole. Its content is a blob, which is written before the row and removed after it.
create table upload_parts (
  id TEXT not null primary key,
  upload_id TEXT not null references uploads (id),
  blob_key TEXT not null unique,
  bytes INTEGER not null check (bytes > 0),
  created_ms INTEGER not null
) STRICT;

create index parts_of_upload on upload_parts (upload_id);
