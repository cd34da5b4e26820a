-- The wall clock of a control plane showed `from_ms` and was set back to `to_ms`. Events after that have times that others had before.
create table journal_set_backs (
  from_ms INTEGER not null,
  to_ms INTEGER not null,
  primary key (from_ms, to_ms)
) STRICT;
