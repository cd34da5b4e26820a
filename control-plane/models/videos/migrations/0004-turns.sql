-- When a server last took a video of an organisation. Among organisations with as many videos at servers, the one with the oldest turn is next.
create table video_turns (
  org_id TEXT not null primary key,
  taken_ms INTEGER not null
) STRICT;
