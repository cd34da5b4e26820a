-- How far a host has come with the values that tell it from copies of its disk: handed out so many, and stored this one for sure.
create table clone_tokens (
  machine_id TEXT not null primary key,
  public_key TEXT not null,
  issued INTEGER not null,
  kept INTEGER not null
) STRICT;
