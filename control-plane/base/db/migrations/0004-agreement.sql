-- What each control plane that serves has set of that on which all must agree: a digest of each setting, as a JSON object.
create table control_plane_settings (
  id TEXT not null primary key,
  settings TEXT not null,
  written_ms INTEGER not null
) STRICT;
