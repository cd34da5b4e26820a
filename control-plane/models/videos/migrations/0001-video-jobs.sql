-- One row for each video that was asked for: what is held and was charged for it, which server makes it, and what is due next.
create table video_jobs (
  id TEXT not null primary key,
  org_id TEXT not null,
  api_key_id TEXT not null,
  request_id TEXT not null,
  model_id TEXT not null,
  status TEXT not null,
  progress INTEGER not null default 0,
  seconds INTEGER not null,
  request TEXT,
  held_ucents INTEGER not null check (held_ucents >= 0),
  charged_ucents INTEGER not null default 0,
  blob_key TEXT,
  upstream TEXT,
  upstream_job_id TEXT,
  upstream_open INTEGER not null default 0,
  submissions_lost INTEGER not null default 0,
  failures INTEGER not null default 0,
  error_code TEXT,
  error_message TEXT,
  created_ms INTEGER not null,
  started_ms INTEGER,
  committed_ms INTEGER,
  ended_ms INTEGER,
  expires_ms INTEGER,
  deleted_ms INTEGER,
  due_ms INTEGER,
  check (charged_ucents between 0 and held_ucents)
) STRICT;

create index video_jobs_due on video_jobs (due_ms, created_ms) where due_ms is not null;
create index video_jobs_of_org on video_jobs (org_id, created_ms, id);
create index video_jobs_blobs on video_jobs (blob_key) where blob_key is not null;
create index video_jobs_open on video_jobs (status, org_id) where status in ('queued', 'in_progress');
create index video_jobs_left_open on video_jobs (status, org_id) where upstream_open = 1;
-- The jobs that wait for a server, in the order in which they get one.
create index video_jobs_waiting on video_jobs (model_id, created_ms, id) where status = 'queued' and upstream is null;
