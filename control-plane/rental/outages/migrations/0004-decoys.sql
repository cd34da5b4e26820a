-- Logins of ours that go the customers' own way, with a key that looks like theirs: a host that serves probes alone is found by them.
create table decoys (
  instance_id TEXT not null primary key,
  machine_id TEXT not null,
  -- OpenSSH private key.
  key_sealed TEXT not null,
  -- OpenSSH line.
  key_line TEXT not null,
  next_ms INTEGER not null,
  failures INTEGER not null default 0,
  last_detail TEXT
) STRICT;

create index decoys_due on decoys (next_ms);
