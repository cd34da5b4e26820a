-- One row for each server that was ever asked, by its address. Whoever counts its jobs to give it another one holds the row.
create table video_servers (
  id TEXT not null primary key
) STRICT;
