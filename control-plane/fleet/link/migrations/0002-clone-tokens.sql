-- How far a host has come with the values that tell it from copies of its disk: the last one that was handed out (`issued`), and the last
-- one that the host has stored for sure (`kept`).
create table clone_tokens (
  machine_id TEXT not null primary key,
  public_key TEXT not null,
  issued INTEGER not null,
  kept INTEGER not null
) STRICT;
