-- Written again and again to prove that commits reach the disk.
create table commit_probes (
  id INTEGER not null primary key,
  at_ms INTEGER not null
) STRICT;
