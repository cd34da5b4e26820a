-- What a workload is reached by. A port belongs to one instance at a time and is reused least recently.
create table endpoints (
  instance_id TEXT not null primary key,
  hostname TEXT not null,
  ssh_port INTEGER not null,
  host_key TEXT,
  tcp_ports TEXT not null,
  app_user TEXT not null,
  app_password_sealed TEXT not null,
  open INTEGER not null
) STRICT;

create index endpoints_open on endpoints (instance_id) where open = 1;

create table endpoint_ports (
  port INTEGER not null primary key,
  instance_id TEXT,
  released_ms INTEGER not null
) STRICT;

create index endpoint_ports_free on endpoint_ports (released_ms, port) where instance_id is null;
