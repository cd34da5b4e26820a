-- The newest link of each machine, for operators and after a restart.
create table agent_links (
  machine_id TEXT not null primary key,
  boot_id TEXT not null,
  agent_version TEXT not null,
  client_ip TEXT not null,
  connected_ms INTEGER not null,
  disconnected_ms INTEGER
) STRICT;
