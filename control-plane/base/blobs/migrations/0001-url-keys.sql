-- Keys that sign presigned URLs of the local disk. A key itself is derived from the secret of the service and the id, so it is not stored.
create table blob_url_keys (
  id TEXT not null primary key,
  created_ms INTEGER not null
) STRICT;
