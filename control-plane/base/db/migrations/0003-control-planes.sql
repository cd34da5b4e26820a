-- Where control planes reach each other.
create table control_planes (
  id TEXT not null primary key,
  url TEXT not null
) STRICT;
